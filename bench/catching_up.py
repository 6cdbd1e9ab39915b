"""What `session` and `dedupe` share: final rows only, both sides measured in turn, answers compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import ours, rival, sums
from bench.figure import Figure, compare_times, same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.rival import Way
    from bench.rows import Rows
    from bench.setting import Setting
    from headrace.dsl import Stream, Table

Answer = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One of the two benches. Both sides return rows (k, n, total) and perhaps a time; `at` is SQL for that time.

    `mine` and `truth` are the checksums that our side and the rival must return, from a plain batch query.
    """

    bench: str
    what: str
    rival: str
    must: str
    at: str
    steps: Callable[[Stream], Stream | Table]
    query: Callable[[Any], Any]
    ways: Sequence[Way]
    mine: Answer
    truth: Answer


def measure(setting: Setting, case: Case, data: Rows) -> Figure:
    """Run both sides in turn and return how many times faster ours processes the rows."""
    setting.say("comparing the answers, row by row")
    deltas = sums.KeptDeltas()
    ours.process(setting, data, deltas, case.steps)
    same("our rows against a batch query", deltas.fingerprint(at=case.at), case.mine)
    way = _best(setting, case, data)
    mine, theirs = [], []
    for number in range(setting.runs(5, 3)):
        sink = sums.Sums()
        mine.append(ours.process(setting, data, sink, case.steps))
        same("our rows of this run", sink.answer, deltas.answer)
        theirs.append(_theirs(setting, case, data, way))
        setting.say(f"run {number + 1}: ours {mine[-1]}; theirs {theirs[-1]}")
    return compare_times(
        case.bench,
        what=f"{data.rows:,} rows, {case.mine[0]:,} {case.what}: processing time, theirs over ours",
        rival=f"{case.rival}, {way.name}",
        must=case.must,
        ours=[t.processing for t in mine],
        theirs=[t.processing for t in theirs],
        unit="s",
    )


def _best(setting: Setting, case: Case, data: Rows) -> Way:
    """Return the rival's fastest way; each way first runs once for its answer, which warms it up."""
    by_time = {}
    for way in case.ways:
        folder = rival.collect_output(setting, case.query(rival.read(setting, data, way)), mode="append")
        same(f"Spark's rows, {way.name}", sums.of_rows_given(folder, at=case.at), case.truth)
        took = _theirs(setting, case, data, way)
        by_time[took.processing] = way
        setting.say(f"trial: theirs, {way.name}: {took}")
    return by_time[min(by_time)]


def _theirs(setting: Setting, case: Case, data: Rows, way: Way) -> Any:
    return rival.process(setting, case.query(rival.read(setting, data, way)), data.rows, mode="append")[0]
