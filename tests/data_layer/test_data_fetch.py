"""Downloads from a server on this machine that can be told to misbehave."""

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ider.data import download
from ider.data.datasets import check, load, status
from ider.data.download import fetch
from ider.data.published import PUBLISHED
from ider.errors import RunError, UserError

ARCHIVE = "cifar-100-binary.tar.gz"


@dataclass
class Server:
    """What it serves, how it misbehaves, and the Range headers it was asked with."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    breaks_after: list[int] = field(default_factory=list)  # bytes sent before the connection is cut, a request each
    asked: list[str | None] = field(default_factory=list)
    labels_as_compressed: bool = False
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.asked.append(asked)
        body = self.files.get(request.path.lstrip("/"))
        if body is None:
            request.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if asked and self.ranges and start >= len(body):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body) - start))
        if self.labels_as_compressed:
            request.send_header("Content-Encoding", "gzip")
        request.end_headers()
        end = start + self.breaks_after.pop(0) if self.breaks_after else len(body)
        request.wfile.write(body[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{running.server_address[1]}"
    yield state
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def whole(make, server: Server, tar_of):
    """CIFAR-100 as the server has it."""
    found = make.random(100, 200, 100)
    server.files[ARCHIVE] = tar_of(make.cifar_binary("cifar100", found))
    make.expect("cifar100", found, server.files, urls={ARCHIVE: f"{server.url}/{ARCHIVE}"})
    return found


def test_a_dataset_is_fetched_checked_and_loaded(make, server: Server, whole) -> None:
    seen: list[tuple[str, int, int | None]] = []
    assert fetch("cifar100", make.root, lambda *step: seen.append(step)) == [make.root / ARCHIVE]
    size = len(server.files[ARCHIVE])
    assert seen[-1] == (ARCHIVE, size, size)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len(seen) > 10
    assert check("cifar100", make.root).verified
    make.same(load("cifar100", make.root), whole)
    assert sorted(path.name for path in make.root.iterdir()) == [ARCHIVE, "decoded"]


def test_what_is_whole_is_not_fetched_again(make, server: Server, whole) -> None:
    for _ in range(2):
        fetch("cifar100", make.root)
    assert server.asked == [None]


def test_what_is_damaged_is_fetched_again(make, server: Server, whole) -> None:
    make.write({ARCHIVE: b"damaged"})
    fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == server.files[ARCHIVE]


def test_the_folder_is_made_and_the_default_one_used(server: Server, whole, elsewhere: Path, monkeypatch) -> None:
    assert fetch("cifar100") == [elsewhere / ARCHIVE]
    monkeypatch.setenv("IDER_DATA", str(elsewhere / "deep" / "er"))
    assert fetch("cifar100") == [elsewhere / "deep" / "er" / ARCHIVE]


def test_a_broken_transfer_is_taken_up_at_once(make, server: Server, whole) -> None:
    server.breaks_after = [200_000, 150_000]
    fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == server.files[ARCHIVE]
    first, second, third = server.asked
    assert first is None
    begun = [int(asked.removeprefix("bytes=").rstrip("-")) for asked in (second, third)]
    assert 200_000 - 2 * download.CHUNK < begun[0] <= 200_000
    assert begun[0] + 150_000 - 2 * download.CHUNK < begun[1] <= begun[0] + 150_000


def test_an_interrupted_transfer_is_taken_up_by_the_next_call(make, server: Server, whole) -> None:
    def interrupt(name: str, done: int, total: int | None) -> None:
        if done > 300_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar100", make.root, interrupt)
    (left,) = make.root.iterdir()
    assert left.name == f"{ARCHIVE}.part"
    have = left.stat().st_size
    seen: list[int] = []
    fetch("cifar100", make.root, lambda name, done, total: seen.append(done))
    assert server.asked == [None, f"bytes={have}-"]
    assert seen[0] > have
    assert seen[-1] == len(server.files[ARCHIVE])
    assert (make.root / ARCHIVE).read_bytes() == server.files[ARCHIVE]
    assert [path.name for path in make.root.iterdir()] == [ARCHIVE]


def test_a_server_without_ranges_sends_everything_again(make, server: Server, whole) -> None:
    server.ranges, server.breaks_after = False, [250_000]
    fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == server.files[ARCHIVE]
    assert server.asked[0] is None
    assert server.asked[1].startswith("bytes=")


@pytest.mark.parametrize("piece", ["whole", "too long", "foreign"])
def test_an_old_piece_that_does_not_fit_does_no_harm(make, server: Server, whole, piece: str) -> None:
    good = server.files[ARCHIVE]
    old = {"whole": good, "too long": good + b"more", "foreign": b"x" * 1000}[piece]
    make.write({f"{ARCHIVE}.part": old})
    fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == good
    assert [path.name for path in make.root.iterdir()] == [ARCHIVE]
    assert server.asked == ([f"bytes={len(old)}-"] if piece == "whole" else [f"bytes={len(old)}-", None])


def test_a_label_of_compression_does_not_unpack_the_archive(make, server: Server, whole) -> None:
    server.labels_as_compressed = True
    fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == server.files[ARCHIVE]


def test_a_wrong_checksum_leaves_nothing_behind(make, server: Server, whole) -> None:
    server.files[ARCHIVE] += b"!"
    with pytest.raises(RunError, match=r"tar\.gz sends something else than the published file: the MD5"):
        fetch("cifar100", make.root)
    assert list(make.root.iterdir()) == []
    assert len(server.asked) == 1


def test_a_failure_leaves_what_was_there(make, server: Server, whole) -> None:
    good = server.files.pop(ARCHIVE)
    make.write({ARCHIVE: b"older"})
    with pytest.raises(
        RunError, match=r"the server answers 404\); try again with: ider data fetch cifar100 --data-dir"
    ):
        fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == b"older"
    assert len(server.asked) == 1
    server.files[ARCHIVE] = good
    fetch("cifar100", make.root)
    assert (make.root / ARCHIVE).read_bytes() == good


def test_a_transfer_that_never_gets_on_ends(make, server: Server, whole) -> None:
    server.breaks_after = [100_000, *[0] * 20]
    with pytest.raises(RunError, match="the connection broke"):
        fetch("cifar100", make.root)
    assert len(server.asked) == 2
    assert (make.root / f"{ARCHIVE}.part").stat().st_size > 80_000


@pytest.mark.parametrize("way", ["refused", "unresolved"])
def test_no_network_is_said_at_once(make, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # nobody listens there
        url = f"http://127.0.0.1:{port}/x" if way == "refused" else "http://nowhere.invalid/x"
        if way == "unresolved":
            monkeypatch.setattr(socket, "getaddrinfo", _no_resolver)
        make.expect("cifar100", make.random(100, 200, 100), urls={ARCHIVE: url})
        began = time.monotonic()
        with pytest.raises(RunError) as caught:
            fetch("cifar100", make.root)
    assert time.monotonic() - began < 5
    wanted = f"{url} could not be downloaded (no connection: ConnectionError); try again with: ider data fetch cifar100"
    assert str(caught.value) == f"{wanted} --data-dir {make.root}"


def _no_resolver(*args: object, **options: object) -> None:
    raise socket.gaierror(-2, "Name or service not known")


def test_fashion_mnist_is_four_files(make, server: Server) -> None:
    found = make.random(10, 20, 10, (1, 28, 28))
    files = make.fashion(found, packed=True)
    server.files = {path.rpartition("/")[2]: content for path, content in files.items()}
    urls = {path: f"{server.url}/{path.rpartition('/')[2]}" for path in files}
    assert urls.keys() == PUBLISHED["fashion-mnist"].urls.keys()
    make.expect("fashion-mnist", found, files, urls=urls)
    assert len(fetch("fashion-mnist", make.root)) == 4
    assert check("fashion-mnist", make.root).verified
    assert load("fashion-mnist", make.root).train.images.tobytes() == found.train.images.tobytes()


def test_a_download_that_came_to_nothing_is_no_dataset(make, server: Server) -> None:
    found = make.random(10, 20, 10, (1, 28, 28))
    files = make.fashion(found, packed=True)
    urls = {path: f"{server.url}/{path.rpartition('/')[2]}" for path in files}
    make.expect("fashion-mnist", found, files, urls=urls)
    with pytest.raises(RunError, match="404"):
        fetch("fashion-mnist", make.root)
    assert status("fashion-mnist", make.root).path is None
    with pytest.raises(UserError, match="is in none of the data folders"):
        load("fashion-mnist", make.root)
    first = next(iter(files))
    make.write({first: files[first]})  # the first of four
    assert status("fashion-mnist", make.root).path is None
    with pytest.raises(UserError, match="is missing; repair it with: ider data fetch"):
        load("fashion-mnist", make.root)


def test_names_that_cannot_be_fetched(make) -> None:
    assert fetch("digits", make.root) == []
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        fetch("cifar1", make.root)
    with pytest.raises(UserError, match="unknown dataset to fetch"):
        fetch("folder:/somewhere", make.root)


def test_a_folder_that_cannot_be_written_is_a_failure_of_the_run(make, whole) -> None:
    (make.root / "file").write_bytes(b"")
    with pytest.raises(RunError, match="could not be written"):
        fetch("cifar100", make.root / "file")


def test_every_address_has_a_checksum_and_comes_first_where_data_is_searched() -> None:
    for name, published in PUBLISHED.items():
        assert published.urls.keys() <= published.md5.keys()
        assert all(len(bytes.fromhex(md5)) == 16 for md5 in published.md5.values())
        first = published.layouts[0][0]
        assert all(path.startswith(first) for path in published.urls), name
