"""Cut the power at every sync of a log's life, and compare the log with what was acknowledged.

    python scripts/log_power.py [--cuts 2000] [--seed 1]

A power loss drops what was written and not synced, completely or in part: of each file, any blocks of 512 bytes and
any length between the synced and the current one; of each folder, any names that were created, replaced or removed
since it was synced; of the mapped head, which is never synced, any earlier version may be left. Before each sync of a
run of appends, rolls and changes, such a disk is constructed and opened as after a restart: no acknowledged record is
lost, and the append in progress is there completely or not at all, before and after its retry. Every other log seals
its text with a key for each append, and forgets some: what was acknowledged can be read, what was forgotten cannot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from headrace.base.schema import to_ddl
from headrace.log import Log
from headrace.log.appending import writer
from headrace.testing.power import of_an_earlier_boot, torn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CUTS_OF_A_RUN = 40


class Disk:
    """What may be left of a folder after a power loss; it follows the syncs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents: dict[int, bytes] = {}  # what was synced, by inode
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}  # of synced folders: name → (inode, is a folder)
        self.heads: dict[int, list[bytes]] = {}  # all versions of mapped files
        self.latest: dict[int, bytes] = {}  # the current content of files, also of removed ones
        self.learn(folder)

    def learn(self, path: Path) -> None:
        """Note that a file or folder is synced, as it is now."""
        number = path.stat().st_ino
        if path.is_dir():
            self.names[number] = {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)}
        else:
            self.contents[number] = path.read_bytes()

    def look(self) -> None:
        """Remember the current content of every file: a later replacement may not reach the disk."""
        for inside, _, names in os.walk(self.folder):
            for name in names:
                path = Path(inside) / name
                raw = path.read_bytes()
                number = path.stat().st_ino
                self.latest[number] = raw
                if name == "head" and raw not in self.heads.setdefault(number, []):
                    self.heads[number].append(raw)

    def after_a_cut(self, into: Path, dice: Random) -> None:
        """Write a folder that may be left on this disk."""
        self.look()
        self._write_folder(self.folder.stat().st_ino, self.folder, into, dice)

    def _write_folder(self, number: int, present: Path | None, into: Path, dice: Random) -> None:
        into.mkdir()
        durable = self.names.get(number, {})
        now = {e.name: (e.inode(), e.is_dir()) for e in os.scandir(present)} if present is not None else {}
        for name in sorted({*durable, *now}):
            entry = durable.get(name) if dice.random() < 0.5 else now.get(name)  # a rename is one or the other
            if entry is None:
                continue
            inside = present / name if present is not None and now.get(name) == entry else None
            if entry[1]:
                self._write_folder(entry[0], inside, into / name, dice)
            else:
                (into / name).write_bytes(self._content(entry[0], name, dice))

    def _content(self, number: int, name: str, dice: Random) -> bytes:
        now, durable = self.latest.get(number, b""), self.contents.get(number, b"")
        if name == "head":
            return of_an_earlier_boot(dice.choice([*self.heads.get(number, [b""]), durable]))
        return torn(now, durable, dice)


@contextmanager
def watched(disk: Disk, before: Callable[[], None]) -> Iterator[None]:
    """Report every sync to the disk, after calling `before`."""
    real, writers = (os.fsync, os.fdatasync), writer._sync

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        inside = path.is_relative_to(disk.folder)
        if inside:
            before()
        real[0](fd)
        if inside:
            disk.learn(path)

    os.fsync = os.fdatasync = sync
    writer._sync = sync
    try:
        yield
    finally:
        os.fsync, os.fdatasync = real
        writer._sync = writers


class CutLife:
    """A life on a disk whose power is cut at syncs."""

    def __init__(self, folder: Path, seed: int, cuts: int) -> None:
        self.folder, self.dice, self.seed, self.cuts = folder, Random(seed), seed, cuts  # noqa: S311 - replays
        self.cuts_made = 0
        (folder / "disk").mkdir(parents=True)
        self.disk = Disk(folder / "disk")

    def live(self) -> None:
        """Live until there were enough cuts; every sync calls `cut`."""
        raise NotImplementedError

    def check(self, left: Path) -> None:
        """Check what may be left of the disk, as after a restart."""
        raise NotImplementedError

    def cut(self) -> None:
        """Cut the power now, unless there were enough cuts."""
        if self.cuts_made >= self.cuts:
            return
        self.cuts_made += 1
        into = self.folder / f"cut-{self.cuts_made}"
        self.disk.after_a_cut(into, self.dice)
        try:
            self.check(into)
        except Exception as error:
            raise AssertionError(f"seed {self.seed}, cut {self.cuts_made}, in {into}: {error}") from error
        shutil.rmtree(into)


class Life(CutLife):
    """A log that lives through appends, rolls and changes; it knows what was acknowledged."""

    def __init__(self, folder: Path, seed: int, cuts: int, *, private: bool = False) -> None:
        super().__init__(folder, seed, cuts)
        self.last_append, self.acknowledged = -1, 0
        self.private = private
        self.forgotten: set[int] = set()
        self.forgetting: int | None = None
        self.inside = Path("deep", "in", "new", "folders")

    def live(self) -> None:
        """Append until there were enough cuts."""
        with watched(self.disk, self.cut), Log(self.disk.folder / self.inside, segment_bytes=6_000) as log:
            private = {"text": "n"} if self.private else None
            topic = log.create_topic("a", "n bigint, i int, text string", private=private)
            self.acknowledged = 1  # the topic is there
            n = columns = 0
            while self.cuts_made < self.cuts:
                what = self.dice.random()
                if what < 0.05:
                    columns += 1
                    topic.evolve(f"{to_ddl(topic.schema)}, c{columns} int", {f"c{columns}": columns})
                elif what < 0.08:
                    topic.add_partitions(topic.partitions + 1)
                elif what < 0.10:
                    topic.alter(retention=f"{n + 1000} days")
                elif what < 0.20 and self.private and n:
                    self.forgetting = self.dice.randrange(n)
                    topic.forget(self.forgetting)
                    self.forgotten.add(self.forgetting)
                    self.forgetting = None
                else:
                    topic.append(_rows(n), partition=0, producer="p", sequence=n)
                    self.last_append = n
                    n += 1

    def cut(self) -> None:
        """Cut the power, once there is a topic."""
        if self.acknowledged:
            super().cut()

    def check(self, left: Path) -> None:
        """Read, retry, and read again."""
        folder = left / self.inside
        acknowledged = self.last_append
        with Log(folder, fsync=False) as reader:
            self._expect(reader, acknowledged, "at the first look")
        with Log(folder, fsync=False, segment_bytes=6_000) as log:
            topic = log.topic("a")
            for retry in (acknowledged, acknowledged + 1):
                if retry >= 0:
                    topic.append(_rows(retry), partition=0, producer="p", sequence=retry)
            assert self._expect(log, acknowledged + 1, "after the retry") == acknowledged + 1
            if self.forgetting is not None:
                topic.forget(self.forgetting)
                texts = topic.read(0, 0, topic.end_offsets()[0])
                left = texts.filter(pc.equal(texts["n"], self.forgetting))["text"]
                assert left.null_count == len(left), f"{self.forgetting} was forgotten again, and can be read"
        with Log(folder, fsync=False) as reader:
            self._expect(reader, acknowledged + 1, "when opened again")

    def _expect(self, log: Log, acknowledged: int, when: str) -> int:
        topic = log.topic("a")
        found = topic.read(0, 0, topic.end_offsets()[0]).select(["n", "i", "text"]).to_pylist()
        last = found[-1]["n"] if found else -1
        gone = set(self.forgotten)
        if any(row["n"] == self.forgetting and row["text"] is None for row in found):
            gone.add(self.forgetting or 0)
        expected = [row | ({"text": None} if n in gone else {}) for n in range(last + 1) for row in _rows(n)]
        assert last in (acknowledged, acknowledged + 1), f"{when}: {acknowledged} was acknowledged, {last} is the last"
        assert found == expected, f"{when}: appends are missing, doubled, there by half, or with other texts"
        return int(last)


def _rows(n: int) -> list[dict[str, Any]]:
    return [{"n": n, "i": i, "text": "x" * (61 * i % 200)} for i in range(1 + n * 7 % 11)]


def cut_often(about: str, life: Callable[[Path, int, int], CutLife], promise: str) -> int:
    """Make the cuts that are asked for, some in each life, which has a folder, a seed and so many cuts."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--cuts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, done = time.monotonic(), 0
    for at in range(-(-options.cuts // CUTS_OF_A_RUN)):
        with tempfile.TemporaryDirectory(prefix="headrace-power-") as folder:
            living = life(Path(folder), options.seed + at, min(CUTS_OF_A_RUN, options.cuts - done))
            living.live()
        done += living.cuts_made
    print(f"{done} cuts from seed {options.seed} on: {promise}; {time.monotonic() - began:.0f} s")
    return 0


def main() -> int:
    """Cut the power of logs."""
    return cut_often(
        "a simulated power loss at every sync",
        lambda folder, seed, cuts: Life(folder, seed, cuts, private=bool(seed % 2)),
        "nothing acknowledged was lost, nothing is there by half or twice",
    )


if __name__ == "__main__":
    sys.exit(main())
