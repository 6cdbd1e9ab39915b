"""Ctrl-C and SIGTERM: a command that goes on and on ends in order."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Handles SIGINT and SIGTERM: the first one requests a stop at the end of the epoch, later ones change nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.event = threading.Event()
        self._quiet = quiet

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self.event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a signal for at most `seconds`; return whether one has arrived."""
        return self.event.wait(seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals inside the block; restore the earlier handlers after it."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Install the handlers."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- what signal asks for
        if not self._quiet:
            note("is stopping, at the end of this epoch" if self.requested else "stopping at the end of this epoch …")
        self.event.set()
