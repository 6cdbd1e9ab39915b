"""`driver_step`: a test with the Driver takes milliseconds, since it starts no JVM and stays in one process.

Three stateful steps on three keys, so three exchanges: rows are sent, the epoch runs, and the view is read. Expected: a
tenth of an epoch of Spark's own stateful aggregate as installed, which has one such step, and of which the time counts
that Spark reports for the batch alone (`tiny_epoch` has the query). The same steps on the Spark carrier are reported.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import headrace as hr
from bench.figure import Figure, paired, same
from bench.tiny_epoch import epochs_of_spark
from headrace.testing import Driver

if TYPE_CHECKING:
    from bench.setting import Setting

ROWS = 10
WARM = 5


def run(setting: Setting) -> list[Figure]:
    """Measure it: steps of both, in turn."""
    if not setting.spark_allowed:
        return []
    steps = setting.runs(60, 20)
    spark = setting.spark  # the driver takes the session that is active
    installed = epochs_of_spark(setting, steps, quiet=False)
    setting.say(f"Spark's own stateful aggregate: an epoch {statistics.median(installed):.1f} ms")
    setting.say(f"{steps} steps of {ROWS} rows on each carrier, in turn, after {WARM} that do not count")
    with Driver(_app()) as mine, Driver(_app(), carrier="spark") as theirs:
        took = [(_timed(mine, number), _timed(theirs, number)) for number in range(WARM + steps)][WARM:]
        same("the view", mine.view("by_all"), theirs.view("by_all"))
        same("rows counted", mine.view("by_all")[0]["n"], ROWS * (WARM + steps))
    del spark
    ours, others = ([pair[side] for pair in took] for side in (0, 1))
    setting.say(f"in process {statistics.median(ours):.1f} ms, on Spark {statistics.median(others):.1f} ms")
    rivals = (
        ("Spark's own stateful aggregate, as installed: one step", "<= 0.1", installed),
        ("the same on the Spark carrier", None, others),
    )
    return [_figure(rival, must, ours, theirs) for rival, must, theirs in rivals]


def _figure(rival: str, must: str | None, ours: list[float], theirs: list[float]) -> Figure:
    ratio, spread = paired(ours, theirs)
    return Figure(
        bench="driver_step",
        what="three stateful steps, send + step + view, in process",
        rival=rival,
        ratio=ratio,
        spread=spread,
        must=must,
        ours=statistics.median(ours),
        theirs=statistics.median(theirs),
        unit="ms",
        runs=len(ours),
    )


def _app() -> hr.App:
    app = hr.App("steps")
    rows = app.stream("rows", "a bigint, b bigint, v bigint")
    by_both = rows.group_by("a", "b").agg(n="count(*)", total="sum(v)").named("by_both")
    by_one = by_both.group_by("b").agg(n="sum(n)", total="sum(total)").named("by_one")
    by_one.group_by().agg(n="sum(n)", total="sum(total)", groups="count(*)").named("by_all").to_view("by_all")
    return app


def _timed(driver: Driver, number: int) -> float:
    began = time.perf_counter()
    driver.send("rows", *_rows(number))
    driver.step()
    driver.view("by_all")
    return (time.perf_counter() - began) * 1000


def _rows(number: int) -> list[dict[str, Any]]:
    return [{"a": (number * 7 + at) % 23, "b": at % 5, "v": number + at} for at in range(ROWS)]
