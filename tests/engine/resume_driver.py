"""Runs one configuration in children that are killed at given moments, one after the other, until one ends by itself.

A child is forked from a process that has only imported the library, so that many deaths take little time. A moment is
"steps N" (SIGKILL after N more steps), "half N" (in the middle of writing the N-th file) or "replace N" (after the N-th
file is written under its temporary name, before it is renamed).
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # making an optimiser imports it, which takes longer than a child's whole life

from ider import records
from ider.config import from_dict
from ider.engine.ledger import Progress
from ider.engine.run import run


def die() -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Calls `die` the given number of calls later."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def tick(self) -> bool:
        self.left -= 1
        return self.left == 0


def arm(moment: str):
    """Make this process die at `moment`; the listener to give to the run."""
    kind, count = moment.split()
    countdown = Countdown(int(count))
    if kind == "half":
        original = records.write_bytes

        def write_half(path: Path, content: bytes) -> None:
            if countdown.tick():
                path.with_name(f".{path.name}.{os.getpid()}.tmp").write_bytes(content[: len(content) // 2])
                die()
            original(path, content)

        records.write_bytes = write_half
        from ider.engine import checkpoint

        checkpoint.write_bytes = write_half
    if kind == "replace":
        rename = os.replace

        def replace(source, target) -> None:
            if countdown.tick():
                die()
            rename(source, target)

        os.replace = replace

    def listen(progress: Progress) -> None:
        if kind == "steps" and countdown.tick():
            die()

    return listen


def main(folder: Path, config_file: Path, moments: list[str]) -> None:
    torch.set_num_threads(1)
    config = from_dict(json.loads(config_file.read_text()))
    deaths = 0
    for moment in [*moments, "never 0"]:
        child = os.fork()
        if child == 0:
            run(config, config.seeds[0], folder, arm(moment))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            deaths += 1
        else:
            assert os.WEXITSTATUS(status) == 0, "the run failed"
            break
    print(deaths)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
