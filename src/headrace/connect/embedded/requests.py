"""Requests that the rows of a topic be read anew: kept beside the embedded log, until the topic's feed has answered."""

from __future__ import annotations

import fcntl
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base import checked
from headrace.base.disk import make_folder
from headrace.connect.embedded import landing_file
from headrace.connect.embedded.landing_file import FOLDER
from headrace.connect.feed import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.log import Log

_FILE = "requests.json"


def request_again(log: Log, topic: str) -> Request:
    """Ask the feed of a topic to read its rows anew; it does so when it runs."""
    request = Request(uuid.uuid4().hex, topic)
    with _alone(log):
        _store(log, [*requests_of(log), request])
    return request


def requests_of(log: Log) -> list[Request]:
    """Return all requests that are not answered, oldest first."""
    path = log.path / FOLDER / _FILE
    try:
        return [Request(*each) for each in checked.from_text(path.read_bytes(), path)["requests"]]
    except FileNotFoundError:
        return []


def answered(log: Log, request: Request) -> None:
    """Forget a request; a repetition changes nothing."""
    with _alone(log):
        _store(log, [each for each in requests_of(log) if each != request])


def _store(log: Log, requests: Sequence[Request]) -> None:
    text = checked.to_text({"requests": [list(each) for each in requests]})
    landing_file.replace(log.path / FOLDER / _FILE, [text.encode()], sync=log.fsync)


@contextmanager
def _alone(log: Log) -> Iterator[None]:
    """Keep other processes from changing the file."""
    make_folder(log.path / FOLDER, sync=log.fsync)
    with (log.path / FOLDER / f".{_FILE}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
