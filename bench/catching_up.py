"""What `session` and `dedupe` share: rows that come once and are never corrected, both sides in turn, one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import ours, rival, sums
from bench.figure import Figure, beside, same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.rival import Way
    from bench.rows import Rows
    from bench.setting import Setting
    from headrace.dsl import Stream, Table

Answer = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One of them. Both sides give rows (k, n, total) and perhaps a time, of which `at` is SQL.

    `mine` and `truth` are what our side must give and what the rival's must, by a plain batch query.
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
    kept = sums.Kept()
    ours.process(setting, data, kept, case.steps)
    same("our rows against a batch query", kept.fingerprint(at=case.at), case.mine)
    way = _best(setting, case, data)
    mine, theirs = [], []
    for number in range(setting.runs(5, 3)):
        sink = sums.Sums()
        mine.append(ours.process(setting, data, sink, case.steps))
        same("our rows of this run", sink.answer, kept.answer)
        theirs.append(_theirs(setting, case, data, way))
        setting.say(f"run {number + 1}: ours {mine[-1]}; theirs {theirs[-1]}")
    return beside(
        case.bench,
        what=f"{data.rows:,} rows, {case.mine[0]:,} {case.what}: processing time, theirs over ours",
        rival=f"{case.rival}, {way.name}",
        must=case.must,
        ours=[t.processing for t in mine],
        theirs=[t.processing for t in theirs],
        unit="s",
    )


def _best(setting: Setting, case: Case, data: Rows) -> Way:
    """Return the rival's fastest way; each gives its answer once before, which is its warm-up."""
    found = {}
    for way in case.ways:
        folder = rival.kept(setting, case.query(rival.read(setting, data, way)), mode="append")
        same(f"Spark's rows, {way.name}", sums.of_rows_given(folder, at=case.at), case.truth)
        took = _theirs(setting, case, data, way)
        found[took.processing] = way
        setting.say(f"trial: theirs, {way.name}: {took}")
    return found[min(found)]


def _theirs(setting: Setting, case: Case, data: Rows, way: Way) -> Any:
    return rival.process(setting, case.query(rival.read(setting, data, way)), data.rows, mode="append")[0]
