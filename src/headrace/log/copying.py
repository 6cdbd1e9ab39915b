"""Copying a log while it is appended to: every partition as of one moment, all within a few milliseconds.

Closed segments never change, and what is published of the current one does not either. So the moment is that of reading
the heads; the bytes are copied afterwards, and cleaners are kept out until then.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.log.appending.producers import SUFFIX
from headrace.log.cleaning.rules import LOCK_NAME
from headrace.log.meta import COPY_NAME as TOPIC_COPY
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
        partitions: dict[str, list[Partition]] = {name: [] for name in topics}
        for name, each in partitions.items():
            _lock_all(log, name, each, locks)
        copy = LogCopy()
        for name, each in partitions.items():
            try:
                _add_topic(copy, log, name, each, locks)
            except FileNotFoundError as error:
                raise each[0].gone(error) from error
        yield copy


def _add_topic(copy: LogCopy, log: Log, name: str, partitions: list[Partition], locks: ExitStack) -> None:
    """Add a topic; its files are read after the heads, so they have the schema and the key of each record."""
    folder, inside = log.path / "topics" / name, f"topics/{name}"
    described = b""
    while described != (described := _description(folder)):  # it may have got partitions meanwhile
        _lock_all(log, name, partitions, locks)
        for partition in partitions:
            _add(copy, f"{inside}/{partition.folder.name}", partition)
    copy.contents[f"{inside}/{TOPIC_FILE}"] = described
    if (folder / keyfile.FILE_NAME).exists():
        copy.contents[f"{inside}/{keyfile.FILE_NAME}"] = (folder / keyfile.FILE_NAME).read_bytes()


def _lock_all(log: Log, name: str, locked: list[Partition], locks: ExitStack) -> None:
    """Keep cleaners out of the partitions of a topic that are not among `locked`, and add these to it."""
    topic = log.topic(name)
    for number in range(len(locked), topic.partitions):
        partition = topic.opened.partition(number)
        locks.enter_context(_kept_out(partition.folder))
        locked.append(partition)


def _description(folder: Path) -> bytes:
    try:
        return (folder / TOPIC_FILE).read_bytes()
    except FileNotFoundError:
        return (folder / TOPIC_COPY).read_bytes()


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
            with suppress(FileNotFoundError):  # an appender that begins a segment has replaced it by a newer one
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
