"""`python -m bench.nexmark.scaling`: how queries go with more cores, more events, and more shards; a table, a picture.

One thing is changed at a time, from the first of `--events`, the last of `--cores` and the first of `--shards` on. Each
point runs in a process of its own, after a run over few events that does not count. The rows that come out must be as
many for all points of equal events. The medians of `--runs` runs are shown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figure import WrongAnswer, same
from bench.nexmark import racing
from bench.nexmark.generator import Generator
from bench.nexmark.numbers import number
from bench.nexmark.point import IN_PROCESS, ON_SPARK, Point, Scaled, measure
from bench.nexmark.queries import QUERIES
from bench.nexmark.scale_picture import picture
from bench.setting import CORES, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WARM = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 if an answer was wrong."""
    options = _options(arguments)
    setting = Setting(scale=1.0, folder=Path(tempfile.mkdtemp(prefix="headrace-nexmark-")))
    found: list[Scaled] = []
    try:
        for point in _measured(options, setting):
            found.append(point)
            print(json.dumps(asdict(point)) if options.json else _text(point), flush=True)
    except WrongAnswer as error:
        print(f"WRONG ANSWER: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(setting.folder, ignore_errors=True)
    if options.picture:
        options.picture.write_text(picture(found))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.nexmark.scaling", description="How Nexmark's queries scale.")
    parser.add_argument("--queries", default="q1,q5,q18,q20")
    parser.add_argument("--events", default="1M,10M", help="such as 1M,10M,100M [1M,10M]; 46 of 50 are bids")
    parser.add_argument("--cores", default=f"1,{CORES}")
    parser.add_argument("--shards", default="4,16,64")
    parser.add_argument("--carriers", default=f"{IN_PROCESS},{ON_SPARK}")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a point")
    parser.add_argument("--picture", type=Path, help="write an SVG")
    options = parser.parse_args(arguments)
    for name in ("queries", "carriers"):
        setattr(options, name, getattr(options, name).split(","))
    for name in ("events", "cores", "shards"):
        setattr(options, name, [number(text) for text in getattr(options, name).split(",")])
    unknown = [name for name in options.queries if name not in QUERIES]
    unknown += [name for name in options.carriers if name not in {IN_PROCESS, ON_SPARK}]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}")
    return options


def _measured(options: argparse.Namespace, setting: Setting) -> Iterator[Scaled]:
    """Run all points, and yield each when it is measured."""
    logs = {events: str(_written(setting, events)) for events in (WARM, *options.events)}
    for query in options.queries:
        rows: dict[int, int] = {}
        for carrier in options.carriers:
            for cores, events, shards in _points(options):
                folder = setting.fresh("point")
                point = Point(query, carrier, cores, shards, logs[events], logs[WARM], str(folder))
                runs = [measure(point) for _ in range(options.runs)]
                shutil.rmtree(folder, ignore_errors=True)
                same(f"{query}: rows that come out", runs[0].rows, rows.setdefault(events, runs[0].rows))
                rate = events / statistics.median(run.seconds for run in runs) / 1e6
                yield Scaled(query, carrier, cores, events, shards, rate, max(run.memory for run in runs))


def _points(options: argparse.Namespace) -> Iterator[tuple[int, int, int]]:
    """Yield cores, events and shards: one of them changed at a time."""
    most, first, least = options.cores[-1], options.events[0], options.shards[0]
    yield from ((cores, first, least) for cores in options.cores)
    yield from ((most, events, least) for events in options.events[1:])
    yield from ((most, first, shards) for shards in options.shards[1:])


def _written(setting: Setting, events: int) -> Path:
    """Write events to the topics of a new log."""
    log = setting.fresh("log")
    deque(racing.appended(setting, log, Generator(), events), maxlen=0)
    return log


def _text(point: Scaled) -> str:
    return (
        f"{point.query:4} {point.carrier:10} {point.cores} cores · {point.events / 1e6:g} M events · "
        f"{point.shards} shards: {point.rate:6.2f} M/s, {point.memory:.1f} GB"
    )


if __name__ == "__main__":
    sys.exit(main())
