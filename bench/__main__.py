"""`python -m bench`: lists the benches, or runs some; progress on stderr, figures on stdout."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.catalogue import BENCHES
from bench.figure import WrongAnswer, table
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figure import Figure, Skipped

QUICK = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benches named; return 1 if an answer was wrong, 2 for misuse. A missed target is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="list: name the benches. NAME: run one.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="list, all, or benches: " + ", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help=f"about {QUICK:.0%}% of the rows, fewer runs")
    parser.add_argument("--scale", type=float, help="this fraction of the rows instead")
    parser.add_argument("--without-spark", action="store_true", help="leave out what needs Spark")
    parser.add_argument("--json", action="store_true", help="one JSON object a figure")
    options = parser.parse_args(arguments)
    if options.names == ["list"]:
        _list(as_json=options.json)
        return 0
    names = list(BENCHES) if options.names == ["all"] else options.names
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no bench {unknown[0]!r}; there are: {', '.join(BENCHES)}")
    scale = options.scale if options.scale is not None else QUICK if options.quick else 1.0
    return _run(names, scale, spark_allowed=not options.without_spark, as_json=options.json)


def _list(*, as_json: bool) -> None:
    for name, bench in BENCHES.items():
        if as_json:
            print(json.dumps({"bench": name, "what": bench.what, "rival": bench.rival, "must": bench.must}))
        else:
            print(f"{name:16} {bench.what}\n{'':16} rival: {bench.rival}; must: {bench.must}")


def _run(names: Sequence[str], scale: float, *, spark_allowed: bool, as_json: bool) -> int:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    setting = Setting(scale=scale, folder=folder, spark_allowed=spark_allowed)
    figures: list[Figure | Skipped] = []
    try:
        for name in names:
            began = time.perf_counter()
            for figure in importlib.import_module(f"bench.{name}").run(setting):
                figures.append(figure)
                if as_json:
                    print(figure.json(), flush=True)
            setting.say(f"{name}: done in {time.perf_counter() - began:.0f} s")
    except WrongAnswer as error:
        print(f"WRONG ANSWER: {error}", file=sys.stderr)
        return 1
    finally:
        setting.close()
        shutil.rmtree(folder, ignore_errors=True)
    if not as_json:
        print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
