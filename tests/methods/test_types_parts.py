"""Parts: several batches end to end behave like a dictionary of batches."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import batch_of

from ider.options import option
from ider.types import Needs, Parts

NAMES = "abcd"


def parts(sizes: dict[str, int], mixed: bool = False) -> Parts:
    return Parts(torch.arange(2 * sum(sizes.values())).view(-1, 2), sizes, mixed)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.sets(st.sampled_from(NAMES), min_size=1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_part_is_the_same_wherever_it_is_read(counts: list[int], wanted: set[str], mixed: bool) -> None:
    whole = parts(dict(zip(NAMES, counts, strict=False)), mixed)
    kept = [name for name in whole.sizes if name in wanted]
    if not kept:
        return
    picked = whole.pick(*wanted)
    assert list(picked.sizes) == kept
    assert picked.mixed is mixed
    assert len(picked.rows) == sum(picked.groups) == sum(picked.sizes.values())
    for name in kept:
        assert name in picked
        assert torch.equal(picked[name], whole[name])
    assert all(name not in picked for name in whole.sizes if name not in wanted)


def test_parts_lie_in_the_order_of_their_sizes() -> None:
    whole = parts({"a": 1, "b": 2})
    assert whole["a"].tolist() == [[0, 1]]
    assert whole["b"].tolist() == [[2, 3], [4, 5]]


def test_neighbours_are_a_view_and_others_a_copy() -> None:
    whole = parts({"a": 1, "b": 2, "c": 1})
    assert whole.pick("c", "a", "b") is whole
    assert whole.pick("b", "c").rows.data_ptr() == whole["b"].data_ptr()
    assert whole.pick("a", "c").rows.tolist() == [[0, 1], [6, 7]]


def test_groups_are_the_parts_or_one_batch() -> None:
    assert parts({"a": 1, "b": 2}).groups == (1, 2)
    assert parts({"a": 1, "b": 2}, mixed=True).groups == (3,)
    assert parts({"a": 1, "b": 2, "c": 4}, mixed=True).pick("a", "c").groups == (5,)


def test_parts_that_keep_to_themselves_are_groups_of_their_own() -> None:
    mixed = dataclasses.replace(parts({"a": 1, "b": 2, "c": 4}, mixed=True), alone=("c",))
    assert mixed.groups == (3, 4)
    assert mixed.pick("a", "c").groups == (1, 4)
    assert mixed.pick("c").groups == (4,)
    assert mixed.pick("a", "b").groups == (3,)
    assert dataclasses.replace(parts({"a": 1, "c": 4}), alone=("c",)).groups == (1, 4)


def test_like_keeps_everything_but_the_rows() -> None:
    other = parts({"a": 1, "b": 2}, mixed=True).like(torch.ones(3))
    assert (other.sizes, other.mixed, other.rows.tolist()) == ({"a": 1, "b": 2}, True, [1, 1, 1])


def test_a_part_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="z"):
        parts({"a": 1})["z"]


def test_a_batch_has_no_coins_and_needs_ask_for_nothing_by_default() -> None:
    batch = batch_of(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), {"a": 1})
    assert (batch.coins, batch.dice, batch.stored, batch.state) == ({}, {}, {}, {})
    assert batch.views is batch.side is None
    assert Needs() == Needs(draws=(), teacher=None, coins=(), mixed=False, joined=False)


def test_an_option_has_a_default_and_a_help() -> None:
    made = dataclasses.make_dataclass("Made", [("x", int, option(3, "a number"))])
    assert made().x == 3
    assert dataclasses.fields(made)[0].metadata["help"] == "a number"
