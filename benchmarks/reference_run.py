"""ER+ID on Split CIFAR-100 as released, written plainly and apart from ider: does ider end where it does?

    python benchmarks/reference_run.py DATA_DIR SEED [WIDTH] [EPOCHS]

Takes nothing of ider but the images in their tasks, and how they are normalised: passes, losses, memory, augmentation,
schedule and evaluation are written out here. Prints the final average accuracy and the task-IL accuracy. Beside it:

    ider run --benchmark cifar100 --method er+id --memory 500 --set net.width=8 --epochs 2 --device cpu --seeds 0,1,2
"""

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from against_reference import Reference, prior, reference_step
from numpy.typing import NDArray
from torch import Tensor

from ider import recipe
from ider.streams import build

BATCH, LR, MILESTONES, CLASSES = 32, 0.03, (0.7, 0.9), 100
Images = NDArray[np.uint8]


class Memory:
    """A class-balanced reservoir: a newcomer that a reservoir would take overwrites one of a fullest class."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self.rng, self.offered = size, rng, 0
        self.samples: list[tuple[Images, int]] = []

    def offer(self, image: Images, label: int) -> None:
        self.offered += 1
        if len(self.samples) < self.size:
            self.samples.append((image, label))
        elif self.rng.integers(self.offered) < self.size:
            counts = np.bincount([known for _, known in self.samples])
            places = [place for place, (_, known) in enumerate(self.samples) if counts[known] == counts.max()]
            self.samples[self.rng.choice(places)] = (image, label)

    def draw(self) -> tuple[Images, NDArray[np.int64]]:
        chosen = self.rng.choice(len(self.samples), min(BATCH, len(self.samples)), replace=False)
        images, labels = zip(*(self.samples[place] for place in chosen), strict=True)
        return np.stack(images), np.array(labels)


class Pictures:
    """From stored images to what the net sees."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], rng: np.random.Generator) -> None:
        self.rng = rng
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (mean, std))

    def plain(self, images: Images) -> Tensor:
        return (torch.from_numpy(np.ascontiguousarray(images)).float() / 255 - self.mean) / self.std

    def augmented(self, images: Images) -> Tensor:
        """Random crops of images padded by 4 zeros, half of them mirrored."""
        found = []
        for image in images:
            top, left = self.rng.integers(0, 9, 2)
            crop = np.pad(image, ((0, 0), (4, 4), (4, 4)))[:, top : top + 32, left : left + 32]
            found.append(crop[:, :, ::-1] if self.rng.random() < 0.5 else crop)
        return self.plain(np.stack(found))


def main(data_dir: str, seed: int, width: int = 8, epochs: int = 2) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng, config = np.random.default_rng(seed), recipe("cifar100", "er+id", 500)
    stream = build(config.stream, data_dir)
    pictures, memory = Pictures(config.images.mean, config.images.std, rng), Memory(500, rng)
    net, old = Reference(CLASSES, width), None
    for task in stream.tasks:
        optimiser = torch.optim.SGD(net.parameters(), LR)
        net.train()
        for epoch in range(epochs):
            passed = sum(epoch >= round(milestone * epochs) for milestone in MILESTONES)
            optimiser.param_groups[0]["lr"] = LR * 0.1**passed
            for chosen in np.array_split(rng.permutation(len(task)), np.arange(BATCH, len(task), BATCH)):
                images, labels = task.images[chosen], task.labels[chosen]
                parts = {"current": (pictures.augmented(images), torch.from_numpy(labels))}
                if memory.samples:
                    for name in ("replay", "distill"):
                        drawn, of = memory.draw()
                        parts[name] = (pictures.augmented(drawn), torch.from_numpy(of))
                reference_step(net, old, optimiser, parts)
                for image, label in zip(images, labels.tolist(), strict=True):
                    memory.offer(image, label)
        old = copy.deepcopy(net).requires_grad_(False)  # in training mode, as released
    net.eval()
    right, within = [], []
    for test in stream.tests:
        with torch.no_grad():
            shown = [pictures.plain(images) for images in np.array_split(test.images, 10)]
            logits = torch.cat([net.decode(net.f1(x), prior(x, CLASSES)) for x in shown])
        labels, own = torch.from_numpy(test.labels), torch.tensor(test.classes)
        right.append(100 * (logits.argmax(1) == labels).double().mean().item())
        masked = torch.full_like(logits, -torch.inf)
        masked[:, own] = logits[:, own]
        within.append(100 * (masked.argmax(1) == labels).double().mean().item())
        assert F.cross_entropy(logits, labels).isfinite()
    print(f"seed {seed}, width {width}, {epochs} epochs: FAA {np.mean(right):.2f}, task-IL {np.mean(within):.2f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
