"""The journal of an app: what each of its epochs read and decided, beside what it published.

It is in the log's folder, `journals/<app>/<id>/<number>.lines`, and so apart from the commits: if commits are lost, or
the storage is restored from an older copy, it says over which ranges the lost epochs ran. A line is the commit of an
epoch without what earlier ones say (heads of earlier epochs, totals), with a checksum. It is written after the commit
and before anything is published, and not synced: it matters only after an accident to the storage.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base import checked
from headrace.base.crc import crc32
from headrace.engine.storage import Commit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = "journals"
SUFFIX = ".lines"
FILE_BYTES = 1 << 20
FILES_TO_KEEP = 64
_CHECKSUM = 9  # bytes of a line before its JSON


class Journal:
    """The journal of one app's storage, written by the process that runs the app.

    Args:
        log: the folder of the app's log.
        app: the app's name.
        identity: the storage's id.

    """

    def __init__(self, log: Path, app: str, identity: str) -> None:
        self.folder = log / FOLDER / app / identity
        self._last: int | None = None
        self._file: int | None = None
        self._room = 0

    def last_epoch(self) -> int | None:
        """Return the epoch of the newest line, None if there is none."""
        if self._last is None:
            for path in reversed(self._files()):
                epochs = [commit.epoch for commit in _lines(path)]
                if epochs:
                    self._last = epochs[-1]
                    break
        return self._last

    def entries(self, after: int) -> dict[int, Commit]:
        """Return what is known of the epochs after one, by epoch in their order."""
        found: dict[int, Commit] = {}
        for path in reversed(self._files()):
            here = {commit.epoch: commit for commit in _lines(path)}
            found = here | found
            if here and min(here) <= after + 1:
                break
        return {epoch: commit for epoch, commit in found.items() if epoch > after}

    def append(self, commit: Commit) -> None:
        """Write the line of a committed epoch, unless it is there: an epoch that is published or run again."""
        last = self.last_epoch()
        if last is not None and commit.epoch <= last:
            return
        body = json.dumps(_own_part(commit), default=checked.members).encode()
        line = b"%08x %s\n" % (crc32(body), body)
        try:
            file = self._open() if self._file is None or self._room <= 0 else self._file
            written = 0
            while written < len(line):  # a disk that is nearly full takes a part of it
                written += os.write(file, line[written:])
        except OSError:
            self.close()  # the next line must not continue this one
            raise
        self._room -= len(line)
        self._last = commit.epoch

    def damaged(self) -> Iterator[tuple[Path, int]]:
        """Yield each file that has damaged lines, with their number; a last line that is being written is none."""
        for path in self._files():
            lines = path.read_bytes().split(b"\n")[:-1]
            bad = sum(1 for line in lines if line and not _intact(line))
            if bad:
                yield path, bad

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        """Open the last file, or a new one where that is full."""
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        size = _cut_off_rest(files[-1]) if files else FILE_BYTES
        if size >= FILE_BYTES:
            number = int(files[-1].stem) + 1 if files else 0
            files, size = [*files, self.folder / f"{number:012d}{SUFFIX}"], 0
        self._file = os.open(files[-1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._room = FILE_BYTES - size
        for old in files[:-FILES_TO_KEEP]:
            old.unlink(missing_ok=True)
        return self._file

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def _cut_off_rest(path: Path) -> int:
    """Cut off what follows the last whole line, which a crash or a full disk left without its end; return the size."""
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    if size < len(content):
        os.truncate(path, size)
    return size


def _own_part(commit: Commit) -> Commit:
    """Return a commit with the heads that its epoch wrote, and without totals."""
    own = f"{commit.epoch:012d}-"
    heads = {
        step: {shard: head for shard, head in by_shard.items() if step in commit.filled or head.file.startswith(own)}
        for step, by_shard in commit.heads.items()
    }
    return replace(commit, heads={step: changed for step, changed in heads.items() if changed}, totals={})


def _lines(path: Path) -> Iterator[Commit]:
    """Yield the intact lines of a file, in the order in which they were written."""
    for line in path.read_bytes().split(b"\n"):
        if _intact(line):
            yield Commit.from_dict(json.loads(line[_CHECKSUM:]))


def _intact(line: bytes) -> bool:
    return line[:_CHECKSUM] == b"%08x " % crc32(line[_CHECKSUM:])
