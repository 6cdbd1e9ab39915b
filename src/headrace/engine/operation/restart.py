"""When an app that failed is started again: how often within how long, and after which pauses."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.base.time import MICROS, duration, show_duration

if TYPE_CHECKING:
    from datetime import timedelta

NEVER = "never"
_TEXT = re.compile(r"(\d+)(?:\s+within\s+(.+))?")


@dataclass(frozen=True)
class Restart:
    """A budget of restarts after failures that may pass: at most `tries` within any time of length `within`.

    The pause before a restart is `first`, and doubles up to `most` with each failure; after an epoch has been committed
    it is `first` again. `tries=0` is never.

    Raises:
        InvalidPlan: `tries` is not a number of at least 0.
        InvalidTime: another argument is not a duration.

    """

    tries: int = 20
    within: str | timedelta = "1 hour"
    first: str | timedelta = "1 second"
    most: str | timedelta = "1 minute"

    def __post_init__(self) -> None:
        if not isinstance(self.tries, int) or isinstance(self.tries, bool) or self.tries < 0:
            raise InvalidPlan(f"tries={self.tries!r} is not possible", hint="Give a number; 0 never restarts.")
        for name in ("within", "first", "most"):
            if duration(getattr(self, name), what=f"duration ({name}=)") < 0:
                raise InvalidPlan(f"{name}={getattr(self, name)!r} is below zero", hint='For example "1 minute".')

    def __str__(self) -> str:
        return f"{self.tries} within {show_duration(duration(self.within))}" if self.tries else NEVER

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        first, most = duration(self.first) / MICROS, duration(self.most) / MICROS
        return float(min(first * 2 ** min(failures - 1, 32), most))


def restart_of(value: Restart | str | None) -> Restart:
    """Return a budget from a value: None is the default, `"never"`, `"5"`, or `"5 within 10 minutes"`.

    Raises:
        InvalidPlan: it is none of these.
        InvalidTime: what follows "within" is not a duration.

    """
    if value is None:
        return Restart()
    if isinstance(value, Restart):
        return value
    if isinstance(value, str):
        if value.strip().lower() == NEVER:
            return Restart(tries=0)
        found = _TEXT.fullmatch(value.strip())
        if found:
            return Restart(int(found[1]), found[2]) if found[2] else Restart(int(found[1]))
    raise InvalidPlan(
        f"restart={value!r} is not possible",
        hint='Give hr.Restart(tries=5, within="10 minutes"), a text such as "5 within 10 minutes", or "never".',
    )


@dataclass
class Budget:
    """What is left of a `Restart`."""

    restart: Restart
    failures: int = 0
    """Failures in a row, without a committed epoch between them."""
    _spent: deque[float] = field(default_factory=deque)

    def spend(self, now: float, *, progressed: bool) -> float | None:
        """Return the seconds to wait before the next start, or None if the budget is spent.

        Args:
            now: seconds of a monotonic clock.
            progressed: whether an epoch was committed since the last start.

        """
        self.failures = 1 if progressed else self.failures + 1
        within = duration(self.restart.within) / MICROS
        while self._spent and self._spent[0] <= now - within:
            self._spent.popleft()
        if len(self._spent) >= self.restart.tries:
            return None
        self._spent.append(now)
        return self.restart.pause(self.failures)

    @property
    def used(self) -> int:
        """How many restarts count against the budget now."""
        return len(self._spent)
