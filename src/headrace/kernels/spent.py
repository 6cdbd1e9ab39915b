"""Where the time of a task goes: seconds by part."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOCK = SystemClock()
READ, EXCHANGE, STATE, STAGING = "read", "exchange", "state", "staging"


def of_step(name: str) -> str:
    """Return the part of a step."""
    return f"step {name}"


@contextmanager
def spent(on: dict[str, float], part: str) -> Iterator[None]:
    """Add the seconds of a block to a part."""
    began = _CLOCK.monotonic()
    try:
        yield
    finally:
        on[part] = on.get(part, 0.0) + _CLOCK.monotonic() - began
