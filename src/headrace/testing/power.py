"""Power cuts: what may be left of a folder whose files were written and not all synced."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.log.segments import head

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.files import Files

BLOCK = 512
EARLIER_BOOT = 12_345
HEAD = "head"
DURABLE_BY_ITSELF = "views.db"
"""SQLite syncs its files without the seam's notice; they are taken as they are."""


class PowerCuts:
    """Follows the syncs of watched files, and cuts the power at a call that is chosen.

    A cut drops what was not synced, completely or in part: of each file any blocks of 512 bytes and any length between
    the synced and the current one; of each folder any names that were created, replaced or removed since it was synced;
    of a partition's mapped head, which is never synced, any version may be left.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._next = itertools.count()
        self._ids: dict[int, int] = {}  # by inode, which a file system uses again
        self._synced: dict[int, bytes] = {}
        self._latest: dict[int, bytes] = {}
        self._heads: dict[int, list[bytes]] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._folders: dict[int, Path] = {}  # where each is now, under whatever name
        self._cut: tuple[int, Random, Path] | None = None
        files.before, files.after = self._before, self._after
        self.all_is_durable()

    def all_is_durable(self) -> None:
        """Take everything as synced, as it is now: after a restart of the machine."""
        for each in (self._ids, self._synced, self._latest, self._heads, self._names):
            each.clear()
        for inside, _, names in os.walk(self.files.folder):
            self._learn(Path(inside))
            for name in names:
                self._learn(Path(inside, name))

    def cut(self, call: int, dice: Random, into: Path) -> None:
        """Cut the power before a call, counted from now; what is left is written to `into`, and the process is dead."""
        self._cut = (self.files.calls + call, dice, into)

    def disarm(self) -> None:
        """Do not cut."""
        self._cut = None

    def _before(self, what: str, path: Path) -> None:
        if self._cut is not None and self.files.calls >= self._cut[0]:
            (_, dice, into), self._cut = self._cut, None
            self._look()
            root = self.files.folder
            self._write_folder(self._id(root), root, into, dice)
            self.files.die(f"the power was cut at {what} of {path.name}")
        if what in ("unlink", "remove", "replace", "rename", "rmdir") and path.exists():
            self._forget(path)

    def _after(self, what: str, path: Path) -> None:
        if what == "sync":
            self._learn(path)

    def _forget(self, path: Path) -> None:
        """A name loses its file: its inode may be another file's next."""
        state = path.stat()
        if path.is_dir() or state.st_nlink > 1:
            return
        self._latest[self._id(path)] = path.read_bytes()
        self._ids.pop(state.st_ino, None)

    def _id(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._ids:
            self._ids[inode] = next(self._next)
        return self._ids[inode]

    def _learn(self, path: Path) -> None:
        if not path.exists():
            return
        if path.is_dir():
            self._names[self._id(path)] = self._entries(path)
        else:
            self._synced[self._id(path)] = path.read_bytes()

    def _entries(self, folder: Path) -> dict[str, tuple[int, bool]]:
        return {entry.name: (self._id(Path(entry.path)), entry.is_dir()) for entry in os.scandir(folder)}

    def _look(self) -> None:
        """Remember the current content of every file, and the place of every folder."""
        self._folders.clear()
        for inside, _, names in os.walk(self.files.folder):
            self._folders[self._id(Path(inside))] = Path(inside)
            for name in names:
                path = Path(inside, name)
                raw = path.read_bytes()
                self._latest[self._id(path)] = raw
                if name == HEAD and raw not in self._heads.setdefault(self._id(path), []):
                    self._heads[self._id(path)].append(raw)

    def _write_folder(self, number: int, present: Path | None, into: Path, dice: Random) -> None:
        into.mkdir()
        durable = self._names.get(number, {})
        now = self._entries(present) if present is not None else {}
        for name in sorted({*durable, *now}):
            sure = name.startswith(DURABLE_BY_ITSELF)
            entry = now.get(name) if sure or dice.getrandbits(1) else durable.get(name)  # a rename is one or the other
            if entry is None:
                continue
            if entry[1]:
                self._write_folder(entry[0], self._folders.get(entry[0]), into / name, dice)
            elif sure:
                (into / name).write_bytes(self._latest.get(entry[0], b""))
            else:
                (into / name).write_bytes(self._content(entry[0], name, dice))

    def _content(self, number: int, name: str, dice: Random) -> bytes:
        now, durable = self._latest.get(number, b""), self._synced.get(number, b"")
        if name == HEAD:
            return of_an_earlier_boot(dice.choice([*self._heads.get(number, [b""]), durable]))
        return torn(now, durable, dice)


def torn(now: bytes, durable: bytes, dice: Random) -> bytes:
    """Return what may be left of a file: any length, and of each block what was written or what was synced."""
    if now == durable:
        return now
    length = dice.choice([len(durable), len(now), dice.randint(*sorted((len(durable), len(now))))])
    content = bytearray(length)
    keep = dice.choice([0.0, 0.5, 0.9, 1.0])  # the share of unsynced bytes that reached the disk
    for at in range(0, length, BLOCK):
        source = now if dice.random() < keep else durable
        block = source[at : min(at + BLOCK, length)]
        content[at : at + len(block)] = block
    return bytes(content)


def of_an_earlier_boot(raw: bytes) -> bytes:
    """Return a head as it was written before the machine was restarted."""
    slots = [head.unpack(raw[at : at + head.SLOT_SIZE]) for at in (0, head.SLOT_SIZE) if len(raw) >= head.BUSY_AT]
    packed = [head.pack(slot._replace(boot=EARLIER_BOOT)) if slot else b"\0" * head.SLOT_SIZE for slot in slots]
    return b"".join(packed) + raw[head.BUSY_AT :] if packed else raw
