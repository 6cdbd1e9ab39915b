"""What `windowed_light` and `windowed_heavy` share: the same aggregate on both sides, answers compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import headrace as hr
from bench import ours, rival, rows, sums
from bench.figure import Figure, WrongAnswer, compare_times, same

if TYPE_CHECKING:
    from bench.progress import Timing
    from bench.rival import Way
    from bench.rows import Rows
    from bench.setting import Setting

ROWS = 4_000_000
KEYS = 10_000
GRACE = "3 hours"
"""Longer than the rows span, on both sides: every group stays in the state until the end."""


@dataclass(frozen=True)
class Case:
    """One of the two benches."""

    bench: str
    size: str
    size_us: int
    must: str
    runs: int


def measure(setting: Setting, case: Case) -> Figure:
    """Run both sides in turn and return how many times faster ours processes the rows."""
    data = rows.make(setting, rows=setting.rows(ROWS), keys=KEYS)
    answer = _agree(setting, case, data)
    way = _best(setting, case, data, answer["groups"])
    mine, theirs = setting.in_turns(
        setting.runs(case.runs, 3),
        lambda: _ours(setting, case, data, answer),
        lambda: rival.catch_up(setting, data, way, size=case.size, grace=GRACE, groups=answer["groups"]),
    )
    return compare_times(
        case.bench,
        what=f"{data.rows:,} rows, {answer['groups']:,} groups: processing time, theirs over ours",
        rival=f"Spark's own aggregate, RocksDB, {way.name}",
        must=case.must,
        ours=[t.processing for t in mine],
        theirs=[t.processing for t in theirs],
        unit="s",
    )


def _agree(setting: Setting, case: Case, data: Rows) -> dict[str, int]:
    """Compare the answers of both sides with a batch query; this also warms them up."""
    setting.say("comparing the answers, row by row")
    deltas = sums.KeptDeltas()
    ours.catch_up(setting, data, _window(case), deltas)
    truth = sums.of_rows(data.parquet, size=case.size_us)
    same("our table against a batch query", deltas.fingerprint(), truth)
    theirs = rival.updates(setting, data, size=case.size, grace=GRACE)
    same("our table against Spark's", deltas.fingerprint(), sums.of_updates(theirs))
    return deltas.answer


def _best(setting: Setting, case: Case, data: Rows, groups: int) -> Way:
    """Return the rival's fastest way; the trials warm it up, and one run warms ours."""
    by_time = {}
    for way in rival.WAYS if setting.scale >= 1 else rival.WAYS[:2]:
        took = rival.catch_up(setting, data, way, size=case.size, grace=GRACE, groups=groups)
        by_time[took.processing] = way
        setting.say(f"trial: theirs, {way.name}: {took}")
    _ours(setting, case, data, None)
    return by_time[min(by_time)]


def _ours(setting: Setting, case: Case, data: Rows, answer: dict[str, int] | None) -> Timing:
    sink = sums.Sums()
    took = ours.catch_up(setting, data, _window(case), sink)
    if answer is not None and sink.answer != answer:
        raise WrongAnswer(f"this run gave {sink.answer}, an earlier one {answer}")
    return took


def _window(case: Case) -> hr.Window:
    return hr.tumbling(case.size, grace=GRACE)
