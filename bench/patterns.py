"""`patterns`: three or more low values of a key and then a high one, within five minutes: `low{3,} high`.

Expected: no target. The rival is a batch: Spark sorts the rows of each key once, and Python's `re` searches one text a
key. Ours orders rows that arrive out of order, keeps what is not decided, and gives each match once it is final.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from bench import ours, rows, sums
from bench.figure import Figure, compare_times, same
from bench.recompute import drop

if TYPE_CHECKING:
    from pathlib import Path

    from bench.rows import Rows
    from bench.setting import Setting
    from headrace.dsl import Stream

ROWS, KEYS = 1_000_000, 10_000
"""A key has a row every 10 seconds, however many rows there are."""
LOW, HIGH = 60, 90
WITHIN = 300_000_000
_LAST = 60_000_000
"""Matches of the last minute are not compared: ours waits for the watermark."""


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    data = rows.make(setting, rows=setting.rows(ROWS), keys=KEYS)
    _agree(setting, data)
    mine, theirs = setting.in_turns(
        setting.runs(5, 3), lambda: _ours(setting, data, sums.Sums()), lambda: _theirs(setting, data, None)
    )
    figure = compare_times(
        "patterns",
        what=f"{data.rows:,} rows, {KEYS:,} keys, low{{3,}} high within 5 minutes: time to catch up, theirs over ours",
        rival="Spark's applyInPandas over all rows of each key at once, and Python's re, noop sink",
        must=None,
        ours=mine,
        theirs=theirs,
        unit="s",
    )
    return [figure]


def _matches(stream: Stream) -> Stream:
    define = {"low": f"v < {LOW}", "high": f"v >= {HIGH}"}
    found = stream.group_by("k").match("low{3,} high", within="5 minutes", define=define)
    return found.agg(n="count(*)", total="sum(low.v)")


def _ours(setting: Setting, data: Rows, sink: sums.Sums) -> float:
    return ours.process(setting, data, sink, _matches).processing


def _agree(setting: Setting, data: Rows) -> None:
    """Compare both answers row by row; this is the warm-up of both sides too."""
    setting.say("comparing the answers, row by row")
    deltas, answer = sums.KeptDeltas(), setting.fresh("matches")
    _ours(setting, data, deltas)
    _theirs(setting, data, answer)
    before = rows.watermark_base(data) - _LAST
    found = pa.concat_tables(deltas.deltas)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("found", found)
        prints = [
            sums.fingerprint(
                con, f"(SELECT k, epoch_us({end}) AS w, n, total FROM {of} WHERE epoch_us({end}) < {before})"
            )
            for end, of in (("match_end", "found"), ("w", f"'{answer}/*.parquet'"))
        ]
    same("our matches against those of re", *prints)


# ---- the rival ----


def _theirs(setting: Setting, data: Rows, answer: Path | None) -> float:
    spark = setting.rival({})
    grouped = spark.read.parquet(str(data.parquet)).groupBy("k")
    found = grouped.applyInPandas(_search, "k bigint, w timestamp, n bigint, total bigint")
    began = time.perf_counter()
    if answer is None:
        drop(found)
    else:
        found.write.parquet(str(answer))
    return time.perf_counter() - began


def _search(part: Any) -> Any:
    """Return the matches in the rows of one key."""
    import pandas as pd

    part = part.sort_values(["at", "v"])
    v, at = part["v"].to_numpy(), part["at"].to_numpy().astype("datetime64[us]").astype(np.int64)
    text = np.where(v < LOW, "l", np.where(v >= HIGH, "h", "x")).astype("U1").tobytes().decode("utf-32-le")
    pattern, times, found, start = re.compile("l{3,}h"), at.tolist(), [], 0
    while (first := pattern.search(text, start)) is not None:
        start = first.start()
        match = pattern.match(text, start, bisect_right(times, times[start] + WITHIN))
        if match is not None:
            found.append((match.start(), match.end()))
        start = start + 1 if match is None else match.end()
    ends = [end - 1 for _, end in found]
    return pd.DataFrame(
        {
            "k": part["k"].iloc[:1].repeat(len(found)).to_numpy(),
            "w": part["at"].to_numpy()[ends],
            "n": [end - begin for begin, end in found],
            "total": [int(v[begin : end - 1].sum()) for begin, end in found],
        }
    )
