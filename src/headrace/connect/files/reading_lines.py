"""What feeds of lines share: how lines become rows, and how long they look."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connect.feed import DeadRecord
from headrace.connect.formats import format_named

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from headrace.connect.feed import Landing

CHUNK_BYTES = 1 << 20
LOOK_SECONDS = 0.2
HEAD_BYTES = 1_024
"""By so many first bytes a file is told from one that got its inode later."""
MARK = b"\xef\xbb\xbf"
"""What some programs write at the beginning of a file of UTF-8 (the byte order mark): it is of no record."""


def land_while(
    land: Callable[[Landing], bool],
    landing: Landing,
    stop: threading.Event,
    *,
    follow: bool,
    every: float = LOOK_SECONDS,
) -> None:
    """Call `land` while it finds something, then every few seconds until `stop` is set; without `follow` return."""
    while not stop.is_set():
        if landing.has_room() and land(landing):
            continue
        if not follow and landing.has_room():
            return
        stop.wait(every if landing.has_room() else LOOK_SECONDS)


def decoded(chunk: bytes, schema: pa.Schema, form: str) -> tuple[pa.RecordBatch, list[DeadRecord]]:
    """Return the lines of a chunk as rows, and those that cannot be decoded; a line ends with LF or CR LF."""
    lines = chunk.decode("utf-8", "replace").split("\n")
    texts = [line.removesuffix("\r") for line in lines if line.strip()]
    found = format_named(form).decode(pa.array(texts, pa.string()), schema)
    reasons = found.reasons.to_pylist()
    dead = [DeadRecord(text, why) for text, why in zip(texts, reasons, strict=True) if why is not None]
    return found.rows, dead


def head_of(content: bytes) -> str:
    """Return how a file begins: the number of bytes, 1,024 at most, and a hash of them."""
    head = content[:HEAD_BYTES]
    return f"{len(head)}:{blake2b(head, digest_size=8).hexdigest()}"


def begins_as(head: str, content: bytes) -> bool:
    """Whether content begins as `head_of` said; everything does where that is not known."""
    return not head or head_of(content[: int(head.partition(":")[0])]) == head
