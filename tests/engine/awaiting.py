"""Waits for what another thread does."""

from __future__ import annotations

import threading


def until(condition):
    """Wait for a thread, up to ten seconds."""
    waiting = threading.Event()
    for _ in range(2_000):
        if condition():
            return True
        waiting.wait(0.005)
    return False
