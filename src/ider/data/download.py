"""Get a published dataset: resumable downloads, moved into place only when the publisher's checksum fits."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ider.data.datasets import DATASETS
from ider.data.published import PUBLISHED
from ider.data.sources import fetch_command, roots
from ider.errors import RunError, UserError, unknown

OnProgress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and the bytes it will have (None: the server does not say)."""

CONNECT_SECONDS, READ_SECONDS = 5, 30
CHUNK = 1 << 14  # what arrived is lost at a break in units of this
ATTEMPTS = 5


def fetch(name: str, data_dir: Path | None = None, on_progress: OnProgress | None = None) -> list[Path]:
    """Download what a published dataset consists of, unless it is there and whole; returns the archives.

    They go to `data_dir`, or $IDER_DATA, or ~/.cache/ider. A broken transfer is taken up where it ended.
    """
    if name not in DATASETS:
        raise unknown("dataset to fetch", name, DATASETS)
    if name not in PUBLISHED:
        return []
    published, root = PUBLISHED[name], roots(data_dir)[0]
    again = fetch_command(name, data_dir)
    return [
        _fetch_file(url, published.md5[path], root / path, on_progress, again) for path, url in published.urls.items()
    ]


def _fetch_file(url: str, md5: str, target: Path, on_progress: OnProgress | None, again: str) -> Path:
    pooch, requests, urllib3 = _packages()
    part = target.with_name(f"{target.name}.part")
    get = partial(_download, part=part, on_progress=on_progress or (lambda name, done, total: None))
    retrieve = partial(pooch.retrieve, url, f"md5:{md5}", target.name, target.parent, downloader=get)
    resumed = part.exists()
    try:
        try:
            return Path(retrieve())
        except ValueError:  # the checksum does not fit, and pooch has deleted the file
            if not resumed:
                raise
            return Path(retrieve())  # the old piece may have been the fault
    except ValueError:
        raise RunError(f"{url} sends something else than the published file: the MD5 does not fit") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise RunError(f"{url} could not be downloaded ({_reason(error)}); try again with: {again}") from None
    except OSError as error:
        raise RunError(f"{target} could not be written ({error.strerror or error})") from None


def _packages() -> tuple[Any, Any, Any]:
    try:
        import pooch  # type: ignore[import-untyped]
        import requests  # what pooch itself depends on
        import urllib3
    except ImportError:
        raise UserError("downloading needs pooch; install it with: pip install pooch") from None
    pooch.get_logger().setLevel("WARNING")  # it would announce every download on stderr
    return pooch, requests, urllib3


def _download(url: str, output_file: str, _pooch: object, *, part: Path, on_progress: OnProgress) -> None:
    """What pooch calls to fill `output_file`; bytes gather in `part`, which outlives a broken transfer."""
    _, requests, urllib3 = _packages()
    for attempt in range(1, ATTEMPTS + 1):
        before = _size(part)
        try:
            _transfer(url, part, on_progress)
            break
        except (requests.RequestException, urllib3.exceptions.HTTPError):
            if attempt == ATTEMPTS or _size(part) <= before:  # nothing arrived: the next attempt would end alike
                raise
    os.replace(part, output_file)


def _transfer(url: str, part: Path, on_progress: OnProgress) -> None:
    _, requests, urllib3 = _packages()
    done = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)) as answer:
        if answer.status_code == 416:  # there is nothing after what we have: it is the whole file, or a wrong one
            return
        answer.raise_for_status()
        if answer.status_code != 206:
            done = 0  # a server without ranges sends everything again
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else None
        with open(part, "ab" if done else "wb") as file:
            # Not iter_content: that would unpack a .gz which a server labels as compressed in transfer.
            for chunk in answer.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                done += len(chunk)
                on_progress(part.stem, done, total)
    if total is not None and done < total:
        raise urllib3.exceptions.ProtocolError("the connection ended early")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    answer = getattr(error, "response", None)
    if answer is not None:
        return f"the server answers {answer.status_code}"
    kind = type(error).__name__
    return f"no connection: {kind}" if isinstance(error, OSError) else f"the connection broke: {kind}"
