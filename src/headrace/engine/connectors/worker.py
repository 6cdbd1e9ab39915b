"""A worker that runs connectors, and shares them with other workers of the same programs.

The workers are a group as consumers are one (`log/groups`): each connector is one partition. Who has died is gone at
once, and the others get what it had; who joins gets a share. A lock on the landing decides in any case that one process
at a time runs a feed.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock
from headrace.engine.connectors.control import Control, reported
from headrace.engine.connectors.units import ENDS, units_of
from headrace.log.groups.membership import Membership, TopicSize

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from headrace.dsl.app import App
    from headrace.engine.connectors.units import Unit
    from headrace.log.shared_state import Life

SESSION_SECONDS = 30.0
"""A worker that looks at nothing for so long is gone. One whose process has died is so at once."""
CLOCK = SystemClock()


class Worker:
    """Runs its share of the connectors of apps; call `look` now and then, and `close` in the end.

    Args:
        apps: the apps.
        folder: where the workers of these apps meet.
        sinks: whether apps without state are run themselves.
        until_ended: whether these end when all is taken out.

    Raises:
        InvalidPlan: there is nothing to run.
        GroupElsewhere: workers on another machine run them.

    """

    def __init__(self, apps: Sequence[App], folder: Path, *, sinks: bool = False, until_ended: bool = False) -> None:
        self._open = ExitStack()
        self.units: dict[str, Unit] = {}
        self._running: set[str] = set()
        self._controls: dict[Path, Control] = {}
        self._lives: dict[Path, Life] = {}
        self._said: dict[Path, dict[str, dict[str, Any]]] = {}
        try:
            for app in apps:
                units, outside = units_of(app, sinks=sinks, until_ended=until_ended)
                if outside is not None:
                    self._open.enter_context(closing(outside))
                self.units |= {f"{app.name}/{unit.names[0]}": unit for unit in units}
            _check_some(self.units, apps)
            for storage in {unit.app.storage for unit in self.units.values()}:
                self._controls[storage] = self._open.enter_context(closing(Control(storage)))
                self._lives[storage] = life = self._controls[storage].worker()
                self._open.callback(life.end)
            self._members = Membership(
                folder, "connect", topics=list(self.units), assignor="sticky", session=SESSION_SECONDS
            )
            self._open.callback(self._members.close)
            self._members.join(self._sizes(), CLOCK.monotonic())
        except BaseException:
            self._open.close()
            raise

    def look(self) -> None:
        """Take and give up connectors as workers come and go, and say how those are that this worker runs."""
        now = CLOCK.monotonic()
        if not self._members.beat(now):  # it was away for too long, and the others have its connectors
            self._stop(set(self._running))
            self._members.forget()
            self._members.join(self._sizes(), now)
        self._members.look(self._sizes(), now)
        revoked = self._members.to_give_up()
        self._stop({name for name, _ in revoked})
        self._members.give_up(revoked)
        self._members.take()
        owned = {name for name, _ in self._members.owned()}
        self._stop(self._running - owned)
        for name in sorted(owned - self._running):
            self.units[name].start()
            self._running.add(name)
        self._report()

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the state of every connector, `app/topic`, whoever runs it."""
        return self._states(self._running)

    def _states(self, mine_are: set[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        said = {storage: reported(storage) for storage in self._controls}
        for name, unit in self.units.items():
            mine = unit.states() if name in mine_are else {}
            for each in unit.names:
                theirs = said[unit.app.storage].get(each, {})
                at = f"{unit.app.name}/{each}"
                found[at] = mine.get(each) or {"state": "elsewhere" if theirs else "starting"} | _counts(theirs)
        return found

    @property
    def ended(self) -> bool:
        """Whether all connectors have ended or failed, whoever ran them."""
        said = {storage: reported(storage) for storage in self._controls}
        return all(
            said[unit.app.storage].get(name, {}).get("state") in ENDS
            for unit in self.units.values()
            for name in unit.names
        )

    def close(self) -> dict[str, dict[str, Any]]:
        """Stop the connectors and leave: the others get them; return the last states."""
        ran = set(self._running)
        self._stop(ran)
        last = self._states(ran)
        try:
            self._members.leave(CLOCK.monotonic())
        finally:
            self._open.close()
        return last

    def _sizes(self) -> dict[str, TopicSize]:
        return {name: TopicSize("connector", 1) for name in self.units}

    def _stop(self, names: set[str]) -> None:
        for name in sorted(names & self._running):
            unit = self.units[name]
            unit.stop()
            self._running.discard(name)
            self._controls[unit.app.storage].withdraw(self._lives[unit.app.storage], unit.names)
            self._said.pop(unit.app.storage, None)

    def _report(self) -> None:
        states: dict[Path, dict[str, dict[str, Any]]] = {storage: {} for storage in self._controls}
        for name in self._running:
            states[self.units[name].app.storage] |= self.units[name].states()
        for storage, found in states.items():
            if found and self._said.get(storage) != found:
                self._controls[storage].report(self._lives[storage], found)
                self._said[storage] = found


def _counts(theirs: dict[str, Any]) -> dict[str, Any]:
    return {"rows": 0, "dead": 0, "error": None} | {key: theirs[key] for key in theirs if key not in ("state", "kind")}


def _check_some(units: Collection[str], apps: Sequence[App]) -> None:
    if not units:
        names = ", ".join(f'"{app.name}"' for app in apps)
        raise InvalidPlan(
            f"the app {names} has no feeds" if len(apps) == 1 else f"none of the apps {names} has feeds",
            hint="Give one to a stream or table: app.stream(…, source=files.lines(…)). Apps without state that take "
            "rows out are run with --sinks.",
        )
