"""`python -m bench.nexmark`: times the queries, checks their answers, and prints a table, JSON, and a picture."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figure import WrongAnswer, same
from bench.nexmark import racing
from bench.nexmark.answers import Kept, Weights
from bench.nexmark.generator import Generator
from bench.nexmark.line import Line
from bench.nexmark.numbers import number
from bench.nexmark.picture import picture
from bench.nexmark.queries import NAMES, QUERIES
from bench.recompute import WARM_SECONDS
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.nexmark.queries import Query
    from bench.nexmark.racing import Data, Way

RIVALS = ("spark", "duckdb")
RUNS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.nexmark", description="The 23 queries of Nexmark.")
    parser.add_argument("--events", default="1M", help="such as 500k, 5M [1M]; 46 of 50 are bids")
    parser.add_argument("--queries", default="all", help="all, or names: q0,q5 [all]")
    parser.add_argument("--rivals", default="spark,duckdb", help="spark, duckdb, both, or none [spark,duckdb]")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each, after one that does not count [3]")
    parser.add_argument("--seed", type=int, default=20260131)
    parser.add_argument("--json", action="store_true", help="one JSON object a query")
    parser.add_argument("--picture", type=Path, help="write an SVG with events a second")
    options = parser.parse_args(arguments)
    names = NAMES if options.queries == "all" else tuple(options.queries.split(","))
    unknown = [name for name in names if name not in QUERIES]
    rivals = tuple(name for name in options.rivals.split(",") if name not in {"", "none"})
    if unknown or set(rivals) - set(RIVALS):
        parser.error(f"there is no {(unknown or sorted(set(rivals) - set(RIVALS)))[0]!r}")
    setting = Setting(scale=1.0, folder=Path(tempfile.mkdtemp(prefix="headrace-nexmark-")))
    lines: list[Line] = []
    try:
        data = racing.write(setting, Generator(seed=options.seed), number(options.events))
        for line in _measured(setting, [QUERIES[name] for name in names], data, rivals, options.runs):
            lines.append(line)
            print(json.dumps(asdict(line)) if options.json else _text(line), flush=True)
    except WrongAnswer as error:
        print(f"WRONG ANSWER: {error}", file=sys.stderr)
        return 1
    finally:
        setting.close()
        shutil.rmtree(setting.folder, ignore_errors=True)
    if not options.json:
        print(_summary(lines))
    if options.picture:
        options.picture.write_text(picture(lines))
    return 0


def _measured(
    setting: Setting, queries: Sequence[Query], data: Data, rivals: Sequence[str], runs: int
) -> Iterator[Line]:
    """Yield the figures of each query: all run in process before Spark starts, and on Spark when it is warm.

    Who runs in process has no JVM beside it: its memory made q20 take twice the processor time.
    """
    in_process = ((query, *_in_process(setting, query, data, rivals, runs)) for query in queries)
    if "spark" not in rivals:
        yield from (line for _, line, _ in in_process)
        return
    lines = list(in_process)
    _warm(setting, queries, data)
    for query, line, truth in lines:
        setting.say(f"{query.name} on Spark")
        way = _agree_on_spark(setting, query, data, truth)
        _time_on_spark(setting, query, data, line, way=way, runs=runs)
        yield line


def _in_process(
    setting: Setting, query: Query, data: Data, rivals: Sequence[str], runs: int
) -> tuple[Line, tuple[int, int]]:
    """Compare the answers once, which warms both sides up, then time them in turn; return the right answer too."""
    setting.say(f"{query.name}: {query.about}")
    kept = Kept()
    racing.ours_in_process(setting, query, data.log, kept)
    truth = kept.answer() if query.waits else racing.duckdb_answer(query, data)
    same(f"{query.name}: ours in process against DuckDB's", kept.answer(), truth)
    mine, theirs = [], []
    for _ in range(runs):
        mine.append(racing.ours_in_process(setting, query, data.log, Weights()))
        if "duckdb" in rivals:
            theirs.append(racing.duckdb_batch(query, data)[1])
    line = Line(query.name, query.about, sum(data.rows[name] for name in query.reads), 0, 0)
    line.in_process = statistics.median(seconds for seconds, _ in mine)
    line.in_process_cpu = statistics.median(processor for _, processor in mine)
    if theirs:
        line.duckdb_cpu = statistics.median(theirs)
        line.duckdb_ratio = statistics.median(ours / other for (_, ours), other in zip(mine, theirs, strict=True))
    return line, truth


def _warm(setting: Setting, queries: Sequence[Query], data: Data) -> None:
    """Run the queries on Spark, ours and Spark's own in turn: the JVM compiles what it runs for a minute or two."""
    until = time.perf_counter() + WARM_SECONDS
    expressed = [query for query in queries if query.streaming is not None]
    for query in itertools.cycle(expressed):
        if time.perf_counter() >= until:
            return
        mine = racing.ours_on_spark(setting, query, data.log, Weights()).processing
        theirs = racing.spark_streaming(setting, query, data, racing.WAYS[0]).processing
        setting.say(f"warming up: {query.name} on Spark {mine:.2f} s, Spark's streaming {theirs:.2f} s")


def _agree_on_spark(setting: Setting, query: Query, data: Data, truth: tuple[int, int]) -> Way | None:
    """Compare the answers, and return the rival's fastest way; None if it cannot express the query."""
    kept = Kept()
    racing.ours_on_spark(setting, query, data.log, kept)
    same(f"{query.name}: ours on Spark against DuckDB's", kept.answer(), truth)
    if query.streaming is None:
        return None
    if not query.closes:
        same(f"{query.name}: Spark's streaming against DuckDB's", racing.spark_answer(setting, query, data), truth)
    trials = {way: racing.spark_streaming(setting, query, data, way).processing for way in racing.WAYS}
    return min(trials, key=lambda way: trials[way])


def _time_on_spark(setting: Setting, query: Query, data: Data, line: Line, *, way: Way | None, runs: int) -> None:
    mine, theirs = [], []
    for _ in range(runs):
        mine.append(racing.ours_on_spark(setting, query, data.log, Weights()).processing)
        if way is not None:
            theirs.append(racing.spark_streaming(setting, query, data, way).processing)
    line.on_spark = statistics.median(mine)
    line.note = way.name if way is not None else "Spark's streaming cannot express it"
    if theirs:
        line.spark = statistics.median(theirs)
        line.spark_ratio = statistics.median(other / ours for ours, other in zip(mine, theirs, strict=True))


def _text(line: Line) -> str:
    parts = [f"{line.query:4} {line.rows / line.in_process / 1e6:6.2f} M/s in process"]
    if line.on_spark:
        parts.append(f"{line.rows / line.on_spark / 1e6:6.2f} M/s on Spark")
    if line.spark_ratio:
        parts.append(f"{line.spark_ratio:5.2f} x Spark's streaming")
    if line.duckdb_ratio:
        parts.append(f"{line.duckdb_ratio:5.2f} x DuckDB's processor time")
    return " · ".join([*parts, line.about])


def _summary(lines: Sequence[Line]) -> str:
    said = []
    for what, ratios in (
        ("against Spark's streaming", [line.spark_ratio for line in lines if line.spark_ratio]),
        ("of DuckDB's processor time", [line.duckdb_ratio for line in lines if line.duckdb_ratio]),
    ):
        if ratios:
            mean = statistics.geometric_mean(ratios)
            said.append(f"{what}: geometric mean {mean:.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    return "\n".join(said)


if __name__ == "__main__":
    sys.exit(main())
