"""What the replay methods share: one answer to everything, cross-entropies of an answer, and further terms."""

from ider.types import Batch, Needs, Net, Parts, Terms


class Supervised:
    """A method whose supervised part is a set of cross-entropies of one answer; `+id` asks for them twice."""

    def needs(self) -> Needs:
        """What the engine must provide; nothing but the current batch by default."""
        return Needs()

    def supervised(self, answer: Parts, batch: Batch) -> Terms:
        """The cross-entropies of one answer to all parts that `needs` names."""
        raise NotImplementedError

    def further(self, first: Parts, teacher: Net | None, batch: Batch) -> Terms:
        """What the method adds to the cross-entropies, given the first answer; nothing by default."""
        return {}

    def terms(self, net: Net, teacher: Net | None, batch: Batch) -> Terms:
        """The loss of one step: the cross-entropies of the first answer, and what the method adds to them."""
        first = net.decode(net.encode(batch.images))
        return self.supervised(first, batch) | self.further(first, teacher, batch)
