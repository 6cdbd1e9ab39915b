"""Each aggregate x each window x {insert only, with withdrawals} x {changes, final}, held against batch Spark SQL.

Rows have nulls and duplicates, values of every type; some come so late that their windows are closed. A window is one
line of `WINDOWS`: its words here, and its bounds in Spark SQL.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from playing import Deltas, play

import headrace as hr
from budget import matrix
from headrace.testing import Driver

SCHEMA = (
    "id int, k string, b boolean, n int, l bigint, x double, f float, d decimal(10,2), s string, day date, "
    "ts timestamp, xs array<int>, r struct<a: int, b: string>, at timestamp"
)
AGGREGATES = {
    "n": "count(*)",
    "n_two": "count(n, s)",
    "n_kinds": "count(distinct s)",
    "n_pairs": "count(distinct n, s)",
    "n_if": "count_if(n > 1)",
    "sum_n": "sum(n)",
    "sum_x": "sum(x)",
    "sum_f": "sum(f)",
    "sum_d": "sum(d)",
    "sum_some": "sum(x) filter (where b)",
    "sum_kinds": "sum(distinct x)",
    "avg_l": "avg(l)",
    "avg_x": "avg(x)",
    "avg_d": "avg(d)",
    "avg_kinds": "avg(distinct d)",
    "both": "bool_and(b)",
    "either": "bool_or(b)",
    "dev": "stddev(x)",
    "dev_pop": "stddev_pop(n)",
    "var": "variance(d)",
    "var_pop": "var_pop(x)",
    "median": "median(x)",
    "parts": "percentile(n, array(0, 0.3, 1))",
    "cont": "percentile_cont(0.2) within group (order by d desc)",
    "disc": "percentile_disc(0.6) within group (order by x)",
    "by": "min_by(s, id)",
    "by_desc": "max_by(xs, id)",
    "corr": "corr(x, n)",
    "covar": "covar_samp(d, n)",
    "covar_pop": "covar_pop(x, d)",
    "slope": "regr_slope(d, n)",
    "line": "regr_intercept(n, d)",
    "r2": "regr_r2(x, n)",
    "sxy": "regr_sxy(n, l)",
    "pairs": "regr_count(x, n)",
    "skew": "skewness(n)",
    "kurt": "kurtosis(d)",
    "bits_and": "bit_and(n)",
    "bits_or": "bit_or(l)",
    "bits_xor": "bit_xor(l)",
    "texts": "listagg(s, '-') within group (order by s desc)",
    "texts_once": "string_agg(distinct s) within group (order by s)",
    "ratio": "round(sum(d) / count(*), 3)",
}
for _type in ("b", "l", "x", "d", "s", "day", "ts", "xs", "r"):
    AGGREGATES |= {f"min_{_type}": f"min({_type})", f"max_{_type}": f"max({_type})"}
    AGGREGATES[f"list_{_type}"] = f"sort_array(collect_list({_type}))"
    AGGREGATES[f"set_{_type}"] = f"sort_array(collect_set({_type}))"
    AGGREGATES[f"mode_{_type}"] = f"mode() within group (order by {_type})"
_PRESENT = "CASE WHEN count(s) > 0 THEN array_join({}) END"
SPARKS = {  # Spark 4.3 cannot compute listagg beside another distinct aggregate
    "texts": _PRESENT.format("sort_array(collect_list(s), false), '-'"),
    "texts_once": _PRESENT.format("sort_array(collect_set(s)), ''"),
}
GRACE = "1 hour"
BOUNDS = "w.start AS window_start, w.end AS window_end"
_INTO = "pmod(unix_seconds(at), 720)"
_BEGIN = f"timestamp_seconds(unix_seconds(at) - {_INTO})"
WINDOWS = {
    "none": (None, None),
    "tumbling": (
        hr.tumbling("7 minutes", grace=GRACE, offset="2 minutes"),
        "window(at, '7 minutes', '7 minutes', '2 minutes')",
    ),
    "hopping": (hr.hopping("9 minutes", "3 minutes", grace=GRACE), "window(at, '9 minutes', '3 minutes')"),
    "cumulating": (
        hr.cumulating("12 minutes", "4 minutes", grace=GRACE),
        (
            f"explode(transform(filter(sequence(1, 3), i -> {_INTO} < i * 240), i -> named_struct('start', {_BEGIN}, "
            f"'end', {_BEGIN} + make_interval(0, 0, 0, 0, 0, i * 4, 0))))"
        ),
    ),
    "session": (hr.session("3 minutes", grace=GRACE), "session_window(at, '3 minutes')"),
    "sliding": (
        hr.sliding("6 minutes", grace=GRACE),
        "named_struct('start', last - INTERVAL '6' MINUTE, 'end', last)",
    ),
}
_LASTS = "SELECT k, at AS last FROM matrix UNION SELECT k, at + INTERVAL '6:00.000001' MINUTE TO SECOND FROM matrix"
_SLIDING = (
    f"(SELECT m.*, last FROM ({_LASTS}) l JOIN matrix m "
    "ON m.k <=> l.k AND m.at BETWEEN last - INTERVAL '6' MINUTE AND last)"
)
"""Rows beside the windows they are in, both bounds inside: a window ends with a row, or a microsecond after it left."""
CASES = matrix(
    WINDOWS,
    (False, True),
    ("changes", "final"),
    # refused: a session that loses a row may fall apart
    without=lambda window, table, emit: (window == "none" and emit == "final") or (window == "session" and table),
    depth=1,
)
COMBINATIONS = [getattr(case, "values", case) for case in CASES]
CUTS = {
    "a row an epoch": lambda _, count: [1] * count,
    "all in an epoch": lambda _, count: [count],
    "by chance, empty ones too": lambda chance, count: [chance.choice([0, 0, 1, 2, 5, 9]) for _ in range(count)],
}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def rows_of(chance, count, *, table):
    """Rows in no order after noon, and some long before it, which come too late; of a table ids come again."""
    made = [_row(chance, 0, NOON)]
    for number in range(count):
        late = chance.random() < 0.15
        minute = chance.randint(-120, -80) if late else chance.randint(0, 30)
        made.append(_row(chance, chance.randint(0, 9) if table else number + 1, NOON + timedelta(minutes=minute)))
    return made


def _row(chance, id_, at):
    n = chance.randint(-3, 3)
    values = {
        "b": chance.random() < 0.5,
        "n": n,
        "l": n * 10**12,
        "x": chance.choice([0.1, -0.0, 0.0, 2.5, -7.25, 1e-300, 3e9]),
        "f": chance.choice([0.5, 0.1, -2.0]),
        "d": Decimal(chance.randint(-999, 999)).scaleb(-2),
        "s": chance.choice(["x", "y", "", "é😀"]),
        "day": date(2026, 1, chance.randint(1, 4)),
        "ts": NOON + timedelta(microseconds=chance.randint(0, 3)),
        "xs": chance.choice([[], [1], [1, 2]]),
        "r": {"a": chance.randint(0, 1), "b": chance.choice(["p", "q"])},
    }
    gone = {name: None for name in values if chance.random() < 0.2}
    return {"id": id_, "k": chance.choice(["a", "b", None]), **values, **gone, "at": at}


def changes_of(chance, rows):
    """The same rows as changes of a table, some of them deletes."""
    return [
        row if i == 0 or chance.random() < 0.8 else {"id": row["id"], "_deleted": True} for i, row in enumerate(rows)
    ]


def is_late(row):
    """Whether its windows are closed once the row of noon has been seen."""
    return row["at"] < NOON - timedelta(minutes=70)


def left(rows, *, table):
    """The rows that count, in windows or not: of a table those that are there in the end."""
    if not table:
        return rows
    current = {}
    for row in rows:
        current.pop(row["id"], None)
        if "_deleted" not in row:
            current[row["id"]] = row
    return list(current.values())


def expected(spark, rows, window, *, table):
    """What Spark makes of the rows."""
    there = left(rows, table=table)
    counted = [row for row in there if window == "none" or not is_late(row)]
    types = [("id", pa.int32()), ("k", pa.string()), ("b", pa.bool_()), ("n", pa.int32()), ("l", pa.int64()),
             ("x", pa.float64()), ("f", pa.float32()), ("d", pa.decimal128(10, 2)), ("s", pa.string()),
             ("day", pa.date32()), ("ts", pa.timestamp("us", tz="UTC")), ("xs", pa.list_(pa.int32())),
             ("r", pa.struct([("a", pa.int32()), ("b", pa.string())])),
             ("at", pa.timestamp("us", tz="UTC"))]  # fmt: skip
    frame = spark.createDataFrame(pa.Table.from_pylist(counted, schema=pa.schema(types)))
    frame.createOrReplaceTempView("matrix")
    made = ", ".join(f"{sql} AS {name}" for name, sql in (AGGREGATES | SPARKS).items())
    bounds = WINDOWS[window][1]
    if bounds is None:
        query = f"SELECT k, {made} FROM matrix GROUP BY k"
    elif window == "session":
        own = BOUNDS.replace("w.", "session_window.")
        query = f"SELECT k, {own}, {made} FROM matrix GROUP BY k, {bounds}"
    else:
        rows = _SLIDING if window == "sliding" else "matrix"
        query = f"SELECT k, {BOUNDS}, {made} FROM (SELECT *, {bounds} AS w FROM {rows}) GROUP BY k, w"
    return spark.sql(query).toArrow().to_pylist()


def found(rows, sizes, window, *, table, emit):
    """What an app makes of them, and how many came late; after the first row, which moves the watermark."""
    app = hr.App("matrix")
    timing = {"event_time": "at"}
    source = app.table("t", SCHEMA, key="id", **timing) if table else app.stream("t", SCHEMA, **timing)
    grouped = source.group_by("k")
    if window != "none":
        grouped = grouped.window(WINDOWS[window][0], emit=emit)
    result = grouped.agg(**AGGREGATES).named("made")
    result.to_view("out")
    deltas = Deltas()
    result.to(deltas)
    with Driver(app, shards=2) as driver:
        play(driver, rows[:1], [1])
        driver.run()
        play(driver, rows[1:], sizes)
        if emit == "final":
            assert driver.view("out") == []
        driver.finish()
        late = driver.counts("made")["late"]
        out = driver.view("out")
    assert sum(deltas.sum.values()) == len(out)
    return out, late


def input_of(combination, cut, *, seed, count):
    """Return the rows or changes of a combination and how they are cut, made of a seed."""
    _, table, _ = combination
    chance = random.Random(seed)  # noqa: S311 -- what is random is replayed from its seed
    rows = rows_of(chance, count, table=table)
    if table:
        rows = changes_of(chance, rows)
    return rows, CUTS[cut](chance, len(rows))


def check(spark, combination, cut, *, seed, count):
    """Play one combination and compare."""
    from test_aggregates import same

    window, table, emit = combination
    rows, sizes = input_of(combination, cut, seed=seed, count=count)
    ours, late = found(rows, sizes, window, table=table, emit=emit)
    same(
        ours,
        expected(spark, rows, window, table=table),
        ["k", *(["window_start", "window_end"] if window != "none" else [])],
    )
    if window != "none" and not table:
        assert late == sum(map(is_late, rows))
