"""Who runs an app, where locks of files cannot be trusted: NFS, mounts of object stores, several machines.

lease/<generation>.json       the owner: it is linked into place, so a generation has one
lease/<generation>.beat       changes every `BEAT_SECONDS` while the owner lives
lease/<generation>.released   the owner has stopped

A lock (`flock`) decides at once where it works: whoever has it knows that an owner of the same kernel has ended. Else
the next one watches the last owner's beat for `LEASE_SECONDS`, by its own clock. An owner that neither beats nor has
released may be paused, and come back: whoever takes over from it commits an epoch of its own before it removes
anything, so that the paused one cannot commit the epoch that it was computing (`Engine`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from headrace.base.errors import StorageBusy
from headrace.base.outside import Fenced
from headrace.base.time import MICROS, SystemClock

BEAT_SECONDS = 2.0
LEASE_SECONDS = 10.0
"""How long an owner that does not beat is watched before another takes over."""
LOOK_SECONDS = 0.1
CLOCK = SystemClock()


def lock_file(file: IO[str], *, shared: bool = False) -> bool | None:
    """Lock a file; return whether this process has the lock, None where the file system has no locks."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


class Lease:
    """A claim on a storage; `take` it, `release` it, and `check` that nobody has taken it over."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.folder = storage / "lease"
        self.generation: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = False

    def __reduce__(self) -> tuple[object, ...]:
        """Return what tasks of Spark get: they look at the storage, and have no claim."""
        return Lease, (self.storage,)

    # ---- taking it ----

    def take(self, *, locked: bool) -> bool:
        """Become the owner; return whether the last one may still live, so that it must be fenced.

        Args:
            locked: whether this process has the lock of the storage, by a lock that works.

        Raises:
            StorageBusy: the owner lives, or another process was quicker.

        """
        self.folder.mkdir(parents=True, exist_ok=True)
        last = self._newest()
        may_live = last is not None and self._may_live(last, locked=locked)
        self.generation = (last or 0) + 1
        aside = self.folder / f".{uuid.uuid4().hex}"
        aside.write_text(json.dumps(_me()))
        try:
            os.link(aside, self._path(self.generation, "json"))
        except FileExistsError:
            owner, self.generation = _shown(self._owner(self.generation)), None
            raise StorageBusy(str(self.storage), owner) from None
        finally:
            aside.unlink(missing_ok=True)
        self._beat(0)
        for entry in self._files():
            if int(entry.stem) < self.generation - 1:
                entry.unlink(missing_ok=True)
        return may_live

    def keep(self) -> None:
        """Beat until `release`, in a thread."""
        self._thread = threading.Thread(target=self._keep, name="headrace-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Stop beating, and let the next owner begin at once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.generation is not None and not self.lost:
            with suppress(OSError):
                self._path(self.generation, "released").touch()
        self.generation = None

    # ---- having it ----

    @property
    def lost(self) -> bool:
        """Whether another process has taken it over."""
        if self.generation is not None and not self._lost:
            with suppress(OSError):
                self._lost = (self._newest() or 0) > self.generation
        return self._lost

    def check(self) -> None:
        """Raise an error if another process has taken it over.

        Raises:
            Fenced: it has.

        """
        if self.lost:
            raise self.fenced()

    def fenced(self) -> Fenced:
        """Return the error of an owner that another process has replaced."""
        newest = self._newest()
        return Fenced(str(self.storage), by=_shown(self._owner(newest)) if newest is not None else "")

    def _keep(self) -> None:
        number = 0
        while not self._stop.wait(BEAT_SECONDS) and not self.lost:
            number += 1
            with suppress(OSError):  # a beat that is lost is followed by another
                self._beat(number)

    def _beat(self, number: int) -> None:
        if self.generation is not None:
            self._path(self.generation, "beat").write_text(f"{number} {CLOCK.now()}")

    # ---- looking at it ----

    def lives(self, *, locked: bool) -> bool:
        """Whether the last owner has beaten a short while ago, by the clocks of both machines.

        Args:
            locked: whether this process has the lock of the storage, by a lock that works.

        """
        newest = self._newest()
        if newest is None or self._path(newest, "released").exists():
            return False
        if locked and self._owner(newest).get("kernel") == _kernel():
            return False
        _, _, at = self._seen(newest).partition(" ")
        return at.isdecimal() and CLOCK.now() - int(at) < 2 * LEASE_SECONDS * MICROS

    def _may_live(self, generation: int, *, locked: bool) -> bool:
        if self._path(generation, "released").exists():
            return False
        owner, me = self._owner(generation), _me()
        if owner.get("kernel") == me["kernel"]:
            if locked:
                return False
            if owner.get("namespace") == me["namespace"] and not _runs(owner.get("process")):
                return False
        self._watch(generation, owner)
        return not self._path(generation, "released").exists()

    def _watch(self, generation: int, owner: dict[str, Any]) -> None:
        """Return when an owner has not beaten for `LEASE_SECONDS`, or has released.

        Raises:
            StorageBusy: it beats.

        """
        began, first = CLOCK.monotonic(), self._seen(generation)
        while CLOCK.monotonic() - began < LEASE_SECONDS and not self._path(generation, "released").exists():
            if self._seen(generation) != first:
                raise StorageBusy(str(self.storage), _shown(owner))
            CLOCK.sleep(LOOK_SECONDS)

    def _seen(self, generation: int) -> str:
        try:
            return self._path(generation, "beat").read_text(errors="replace")
        except OSError:
            return ""

    def _owner(self, generation: int) -> dict[str, Any]:
        try:
            owner = json.loads(self._path(generation, "json").read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return owner if isinstance(owner, dict) else {}

    def _newest(self) -> int | None:
        return max((int(entry.stem) for entry in self._files() if entry.suffix == ".json"), default=None)

    def _files(self) -> list[Path]:
        try:
            return [entry for entry in self.folder.iterdir() if entry.stem.isdigit()]
        except FileNotFoundError:
            return []

    def _path(self, generation: int, what: str) -> Path:
        return self.folder / f"{generation:012d}.{what}"


def _me() -> dict[str, Any]:
    return {"kernel": _kernel(), "namespace": _namespace(), "host": socket.gethostname(), "process": os.getpid()}


def _kernel() -> str:
    """Return what identifies the running kernel: its processes see each other's locks."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def _namespace() -> str:
    """Return what identifies the set of processes in which a process number has one meaning."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return socket.gethostname()


def _runs(process: object) -> bool:
    """Whether a process of this number runs; what is no number is one that is not known to have ended."""
    if not isinstance(process, int):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return process > 0


def _shown(owner: dict[str, Any]) -> str:
    return f"{owner['process']} on {owner['host']}" if "process" in owner and "host" in owner else ""
