"""What the process that runs an app says of itself, for `status` in other processes: a small file in the storage."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.errors import HeadraceError
from headrace.base.time import SystemClock, as_datetime

if TYPE_CHECKING:
    from headrace.engine.storage import Storage

FILE = "run.json"
State = Literal["starting", "running", "retrying", "stopped", "failed"]
CLOCK = SystemClock()


class RunState:
    """The state of a run, written when it changes; a disk that refuses it stops nothing.

    `restarts` are those of this run, `error` the text of the last failure, `next_try` when it starts again.
    """

    def __init__(self, storage: Storage, *, carrier: str) -> None:
        self.storage = storage
        self._facts: dict[str, Any] = {
            "state": "starting",
            "carrier": carrier,
            "restarts": 0,
            "error": None,
            "next_try": None,
            "since": CLOCK.now(),
        }

    def set(self, state: State, **changes: Any) -> None:
        """Change the state, and others of the facts."""
        self._facts |= {"state": state, "next_try": None, "since": CLOCK.now(), **changes}
        with suppress(OSError, HeadraceError):
            self.storage.lease.check()  # the file is that of the process that runs the app now
            if self.storage.path.is_dir():  # else it was moved away, and its place stays free for it
                self.storage.write_json(FILE, self._facts)

    @property
    def failed(self) -> bool:
        """Whether the run has ended with an error."""
        return bool(self._facts["state"] == "failed")

    def shown(self) -> dict[str, Any]:
        """Return the facts as `status` shows them."""
        return shown(self._facts)


def shown(facts: dict[str, Any]) -> dict[str, Any]:
    """Return stored facts as `status` shows them: `state`, `carrier`, `restarts`, `last_error`, `next_try`."""
    next_try = facts.get("next_try")
    return {
        "state": facts.get("state", "stopped"),
        "carrier": facts.get("carrier"),
        "restarts": facts.get("restarts", 0),
        "last_error": facts.get("error"),
        "next_try": None if next_try is None else as_datetime(next_try),
    }


def stored(storage: Storage, *, busy: bool) -> dict[str, Any]:
    """Return what the last run said of itself; `busy`: whether a process holds the storage now.

    A run that ended without saying so was killed: its state is "killed".
    """
    try:
        facts = storage.read_json(FILE) or {}
    except (HeadraceError, OSError):
        facts = {}  # nothing depends on it
    now = shown(facts)
    if busy and now["state"] in ("stopped", "failed"):
        return now | {"state": "starting" if facts else "running"}
    if not busy and now["state"] in ("starting", "running", "retrying"):
        return now | {"state": "killed", "next_try": None}
    return now
