"""The memory's tensors, and that they are all a learner keeps of the images of a task that is over."""

import gc
import types
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from ider import METHODS, Learner, Task, UserError
from ider.config import EngineConfig, ImageConfig, LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.engine.step import Phase
from ider.memory.store import MemoryStore

CPU = torch.device("cpu")
SHAPE = (1, 4, 4)
MEAN, STD = 0.4, 0.25


def images_of(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)


def test_what_is_written_is_read():
    store = MemoryStore(4, (1, 2, 2), CPU)
    store.write(torch.tensor([2, 0]), images_of(7, 9), torch.tensor([1, 5]))
    store.write(torch.tensor([3, 2]), images_of(8, 6), torch.tensor([4, 3]))
    assert store.tensors()["images"][:, 0, 1, 0].tolist() == [9, 0, 6, 8]
    assert store.tensors()["labels"].tolist() == [5, 0, 3, 4]


def test_a_memory_that_does_not_fit_is_a_mistake_that_names_its_size():
    with pytest.raises(UserError, match=f"memory.size is {10**15}; so many images do not fit into cpu memory"):
        MemoryStore(10**15, (3, 32, 32), CPU)


def test_the_spare_slot_takes_any_number_and_is_not_content():
    store = MemoryStore(2, (1, 2, 2), CPU)
    store.write(torch.tensor([2, 1, 2, 2]), images_of(1, 2, 3, 4), torch.tensor([1, 2, 3, 4]))
    assert {name: tensor.shape for name, tensor in store.tensors().items()} == {"images": (2, 1, 2, 2), "labels": (2,)}
    assert store.tensors()["images"].amax((1, 2, 3)).tolist() == [0, 2]
    assert store.tensors()["labels"].tolist() == [0, 2]


def test_a_memory_of_no_slots_takes_writes():
    store = MemoryStore(0, (1, 2, 2), CPU)
    store.write(torch.tensor([0, 0]), images_of(1, 2), torch.tensor([1, 2]))
    assert store.tensors()["images"].shape == (0, 1, 2, 2)
    assert store.tensors()["labels"].shape == (0,)


def test_restore_overwrites_in_place():
    store, other = MemoryStore(3, (1, 2, 2), CPU), MemoryStore(3, (1, 2, 2), CPU)
    store.write(torch.tensor([0, 1, 2]), images_of(5, 6, 7), torch.tensor([2, 1, 0]))
    places = other.images.data_ptr(), other.labels.data_ptr()
    other.restore({name: tensor.clone() for name, tensor in store.tensors().items()})
    assert (other.images.data_ptr(), other.labels.data_ptr()) == places
    assert torch.equal(other.images[:3], store.images[:3])
    assert other.labels.tolist() == [2, 1, 0, 0]
    assert (other.images.dtype, other.labels.dtype) == (torch.uint8, torch.int64)


def config_of(method: str, memory: int) -> LearnerConfig:
    return LearnerConfig(
        method=METHODS[method],
        net=NetConfig(name="small-conv", width=4, split=1, classes=4, label_input=method == "er+id"),
        memory=MemoryConfig(size=memory, policy="class-balanced"),
        train=TrainConfig(epochs=2, batch=8, replay_batch=6, lr=0.01, momentum=0.5),
        images=ImageConfig(mean=(MEAN,), std=(STD,), pad=1, flip=True),
        engine=EngineConfig(device="cpu", precision="fp32", threads=1),
    )


def task_of(*labels: int, seed: int) -> Task:
    rng = np.random.default_rng(seed)
    return Task(rng.integers(0, 256, (30, *SHAPE), dtype=np.uint8), rng.permutation(np.resize(labels, 30)))


def reachable(root: object) -> Iterator[object]:
    """All objects that can be reached from one, through attributes, containers, closures and bound methods."""
    stack, known = [root], set()
    while stack:
        item = stack.pop()
        if id(item) in known or isinstance(item, type | types.ModuleType):
            continue
        known.add(id(item))
        yield item
        if isinstance(item, types.FunctionType):  # its globals are no business of the learner's
            stack += [cell.cell_contents for cell in item.__closure__ or ()] + list(item.__defaults__ or ())
        else:
            stack += gc.get_referents(item)
            stack += [item.grad, item.grad_fn] if isinstance(item, torch.Tensor) else []
            stack += [item.base] if isinstance(item, np.ndarray) else []


def content(item: object) -> bytes:
    """All bytes that an object keeps alive: of a view those of the whole."""
    if isinstance(item, torch.Tensor):
        return torch.empty(0, dtype=torch.uint8).set_(item.untyped_storage()).numpy().tobytes()
    if isinstance(item, np.ndarray):
        return item.tobytes()
    return bytes(item) if isinstance(item, bytes | bytearray) else b""


def spellings(image: np.ndarray) -> list[bytes]:
    """An image as it might be hidden: raw, or as floats in 0..1 or normalised."""
    unit = image.astype(np.float32) / 255
    normal = (torch.from_numpy(image).float() / 255 - MEAN) / STD
    return [image.tobytes(), unit.tobytes(), normal.numpy().tobytes(), image.astype(np.float32).tobytes()]


def holders(root: object, task: Task) -> tuple[list[object], set[int]]:
    """The objects that hold images of a task, and the numbers of these images."""
    objects, numbers = [], set()
    for item in reachable(root):
        inside = content(item)
        found = {number for number, image in enumerate(task.images) if any(text in inside for text in spellings(image))}
        if found:
            objects.append(item)
            numbers |= found
    return objects, numbers


def test_the_search_for_images_finds_hidden_ones():
    task = task_of(0, 1, seed=9)
    for hidden in (
        {"a": [torch.from_numpy(task.images[3:5])]},
        lambda: task.images,
        torch.from_numpy(task.images)[:1].mean,
        types.SimpleNamespace(x=((torch.from_numpy(task.images[2:3]).float() / 255) - MEAN) / STD),
        torch.from_numpy(task.images[4:6])[:0],
    ):
        assert holders(hidden, task)[1]
    assert holders({"labels": task.labels}, task) == ([], set())


@pytest.mark.parametrize(("method", "memory"), [("er", 7), ("er+id", 7), ("er", 100), ("finetune", 0)])
def test_a_learner_holds_no_image_of_a_past_task_but_those_in_its_memory(method, memory, tmp_path):
    first, second = task_of(0, 1, seed=1), task_of(2, 3, seed=2)
    learner = Learner(config_of(method, memory), seed=3).learn(first)
    learner.learn(second)
    assert not any(isinstance(item, torch.Tensor) and item.grad_fn is not None for item in reachable(learner))
    kept = {learner.memory.images[slot].numpy().tobytes() for slot in range(learner.slots.filled)}
    in_memory = {number for number, image in enumerate(first.images) if image.tobytes() in kept}
    storage = learner.memory.images.untyped_storage().data_ptr()
    objects, numbers = holders(learner, first)
    assert numbers == in_memory
    assert bool(in_memory) == (memory > 0)
    assert all(isinstance(item, torch.Tensor) for item in objects)
    assert {item.untyped_storage().data_ptr() for item in objects} <= {storage}
    learner.save(tmp_path / "learner")
    saved = (tmp_path / "learner").read_bytes()
    for task in (first, second):
        for image in task.images:
            assert (image.tobytes() in saved) == (image.tobytes() in kept)


@pytest.mark.parametrize("policy", ["reservoir", "class-balanced"])
def test_the_memory_holds_the_original_images_with_their_labels(policy):
    tasks = [task_of(0, 1, seed=4), task_of(2, 3, seed=5)]
    label_of = {image.tobytes(): label for task in tasks for image, label in zip(task.images, task.labels, strict=True)}
    config = config_of("er", 20)
    learner = Learner(LearnerConfig(**{**vars(config), "memory": MemoryConfig(size=20, policy=policy)}), seed=6)
    for number, task in enumerate(tasks, 1):
        learner.learn(task)
        images, labels = (tensor.numpy() for tensor in learner.memory.tensors().values())
        assert learner.slots.labels.tolist() == labels.tolist()
        assert [label_of[image.tobytes()] for image in images] == labels.tolist()
        assert set(labels.tolist()) == {label for known in tasks[:number] for label in known.classes}
        assert learner.slots.offered == number * 60


def test_a_memory_of_no_slots_keeps_no_image_at_all():
    task = task_of(0, 1, seed=7)
    assert holders(Learner(config_of("finetune", 0)).learn(task), task) == ([], set())


def test_the_place_of_a_task_s_images_is_blank_when_it_is_over():
    learner = Learner(config_of("er", 5)).learn(task_of(0, 1, seed=8))
    assert learner._bench is not None
    assert not learner._bench.images.any()
    assert not learner._bench.labels.any()


def test_a_learner_stopped_before_its_first_step_learns_the_task_it_is_given_next(monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    first, second = task_of(0, 1, seed=10), task_of(2, 3, seed=11)
    learner = Learner(config_of("er", 7))
    with monkeypatch.context() as patched:
        patched.setattr(Phase, "load", stop)
        with pytest.raises(KeyboardInterrupt):
            learner.learn(first)
    learner.learn(second)
    assert learner.memory.tensors()["labels"].tolist() == learner.slots.labels.tolist()
    assert holders(learner, first) == ([], set())


def test_a_task_of_read_only_arrays_is_learnt():
    task = task_of(0, 1, seed=12)
    images, labels = task.images.copy(), task.labels.copy()
    images.flags.writeable = labels.flags.writeable = False
    torch.set_warn_always(True)  # else only once a process
    try:
        learner = Learner(config_of("er", 7)).learn(Task(images, labels))
    finally:
        torch.set_warn_always(False)
    assert learner.tasks_learned == 1
