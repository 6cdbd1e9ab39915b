"""How a demo runs: its input is appended in parts, and each part is processed before the next is appended."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.base.time import SystemClock
from headrace.demo.carriers import open_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.app import App
    from headrace.demo.carriers import Carried
    from headrace.demo.catalogue import Demo

PARTS = 16
"""How many parts the input is cut into: a watermark moves between epochs, so within one part nothing is late."""


def feed(demo: Demo, app: App, running: Carried, *, progress: Callable[[int, dict[str, Any]], None]) -> float:
    """Append a demo's rows in parts and process each; return how many seconds it took.

    After each part `progress` is called with the rows sent so far and the app's status.
    """
    clock = SystemClock()
    began = clock.monotonic()
    size = _part_size(demo.total)
    source, sent = iter(demo.rows()), 0
    with open_log(app) as log:
        while part := list(islice(source, size)):
            for topic, records in demo.by_topic(part).items():
                if records:
                    log.topic(topic).append(records)
            running.await_caught_up()
            sent += len(part)
            progress(sent, running.status())
    return clock.monotonic() - began


def facts(demo: Demo, app: App, *, carrier: str, seconds: float, status: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a run: input, rows that the steps took in, seconds, parts, epochs, late rows."""
    rows = sum(step["rows_in"] for step in status["steps"].values())
    return {
        "demo": demo.name,
        "carrier": carrier,
        "storage": app.storage,
        demo.unit: demo.total,
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds, 1),
        "parts": -(-demo.total // _part_size(demo.total)),
        "epochs": status["epoch"] + 1,
        "late": max(step["late"] for step in status["steps"].values()),
    }


def _part_size(total: int) -> int:
    return max(1, -(-total // PARTS))
