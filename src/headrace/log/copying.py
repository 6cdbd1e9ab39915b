"""Copying a log while it is appended to: every partition as of one moment, all within a few milliseconds.

Closed segments never change, and what is published of the current one does not either. So the moment is that of reading
the heads; the bytes are copied afterwards, and cleaners are kept out until then.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.log.appending.producers import SUFFIX
from headrace.log.cleaning.rules import LOCK_NAME
from headrace.log.meta import FILE_NAME as TOPIC_FILE
from headrace.log.privacy import keyfile
from headrace.log.segments import layout as layouts
from headrace.log.segments.head import FILE_SIZE, new_head
from headrace.log.segments.partition import HEAD_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.log.log import Log
    from headrace.log.segments.partition import Partition


@dataclass(frozen=True, slots=True)
class LogCopy:
    """What to write for a copy, by path below the log's folder.

    `contents`: small files, as they were. `prefixes`: files of which so many bytes are to be copied.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    prefixes: dict[str, tuple[Path, int]] = field(default_factory=dict)


@contextmanager
def copied(log: Log, topics: Sequence[str]) -> Iterator[LogCopy]:
    """Return, as a context, what topics are now; no cleaning removes their files inside it.

    Topics are looked at in their order: what a later one has is at least as new. Archived segments stay where they are.

    Raises:
        TopicDeleted: one was deleted meanwhile.

    """
    with ExitStack() as locks:
        partitions = {
            name: [log.topic(name).opened.partition(number) for number in range(log.topic(name).partitions)]
            for name in topics
        }
        for each in partitions.values():
            for partition in each:
                locks.enter_context(_kept_out(partition.folder))
        copy = LogCopy()
        for name, each in partitions.items():
            folder = log.path / "topics" / name
            for file in (TOPIC_FILE, keyfile.FILE_NAME):
                if (folder / file).exists():
                    copy.contents[f"topics/{name}/{file}"] = (folder / file).read_bytes()
            for partition in each:
                _add(copy, f"topics/{name}/{partition.folder.name}", partition)
        yield copy


@contextmanager
def _kept_out(folder: Path) -> Iterator[None]:
    """Keep cleaners out of a partition, whether or not it was cleaned before."""
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def _add(copy: LogCopy, name: str, partition: Partition) -> None:
    state = partition.state()
    copy.contents[f"{name}/{HEAD_NAME}"] = new_head(state)[:FILE_SIZE]
    for path in partition.folder.glob(f"*{SUFFIX}"):
        if int(path.stem) <= state.end:
            copy.contents[f"{name}/{path.name}"] = path.read_bytes()
    layout = partition.folder / layouts.FILE_NAME
    if layout.exists():
        copy.contents[f"{name}/{layout.name}"] = layout.read_bytes()
    for span in partition.spans(state):
        segment = partition.opened(span)
        current = span.entry is None and span.base == state.segment
        if span.base > state.end or (span.base == state.end and not current):
            continue  # it began after the head was read
        if segment.path.parent == partition.folder:
            size = state.position if current else segment.size()
            copy.prefixes[f"{name}/{segment.path.name}"] = segment.path, size
        if not current and segment.index_path.exists():
            copy.prefixes[f"{name}/{segment.index_path.name}"] = segment.index_path, segment.index_path.stat().st_size
