"""More words of simulated programs: tables that grow, rows with the rows before them, ties, results that wait, SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.testing.simulation.shapes import (
    DELAY,
    GRACE,
    NONE,
    SECOND,
    Shape,
    Word,
    grace_of,
    plain,
    same,
    stream,
    tables,
)

if TYPE_CHECKING:
    from random import Random

Drawn = tuple[str, str, Shape]
COLUMNS = "id, k, g, v, ts"
SELECTED = '.select("id", "k", "g", "v", "ts")'
ASCENDING = "id NULLS FIRST, k NULLS FIRST, g NULLS FIRST, v NULLS FIRST"
"""How `over` orders rows of one time: by the whole row."""


def aligned(kind: str, dice: Random) -> tuple[str, str]:
    """Return a window's arguments and the query of the windows of each row."""
    size, hop = dice.choice(((10, 5), (30, 10), (12, 4)))
    n = ", ".join(f"({number})" for number in range(size // hop))
    rows = "{0}" if kind == "tumbling" else f"{{0}} CROSS JOIN (VALUES {n}) AS hops(n)"
    s, h = size * SECOND, hop * SECOND
    if kind == "tumbling":
        return (
            f'"{size} seconds"',
            f"SELECT *, ts - ts % {s} AS window_start, ts - ts % {s} + {s} AS window_end FROM {rows}",
        )
    if kind == "hopping":
        start = f"ts - ts % {h} - n * {h}"
        return (
            f'"{size} seconds", "{hop} seconds"',
            f"SELECT *, {start} AS window_start, {start} + {s} AS window_end FROM {rows} WHERE ts < {start} + {s}",
        )
    start = f"ts - ts % {s}"
    return (
        f'"{size} seconds", "{hop} seconds"',
        (
            f"SELECT *, {start} AS window_start, {start} + (n + 1) * {h} AS window_end FROM {rows} "
            f"WHERE ts < {start} + (n + 1) * {h}"
        ),
    )


def _as_table(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    """A stream with late rows may be kept for some seconds: what the watermark has not left behind is there."""
    shape = Shape(table=True, waits=shapes[0].waits, timed=shapes[0].timed and not shapes[0].late)
    if not shapes[0].late:
        keep = dice.choice(("", 'keep="9 days"'))
        return f'{{0}}.as_table({keep}).named("{{me}}")', f"SELECT {COLUMNS}, {NONE} FROM {{0}}", shape
    seconds = dice.choice((0, 4, 15))
    newest = f"(SELECT max(ts) FROM l_records) - {DELAY * SECOND}"
    return (
        f'{{0}}.as_table(keep="{seconds} seconds").named("{{me}}")',
        f"SELECT {COLUMNS}, {NONE} FROM {{0}} WHERE ts >= {newest} - {seconds * SECOND}",
        replace(shape, late_rows=f"SELECT {COLUMNS} FROM {{0}} WHERE ts < _w - {seconds * SECOND}"),
    )


def _over(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    late = shapes[0].late
    corrected = shapes[0].table or dice.random() < 0.5
    key, value = dice.choice(("k", "g")), dice.choice((*SUMS, *FIRSTS, *PLACES, *(("lead(v)",) if corrected else ())))
    frame, counted = _frame(dice, value)
    arguments = ", ".join([*([frame] if frame else []), *(['emit="changes"'] if corrected else [])])
    before, _, call = value.rpartition("v - ")
    query = f"{'v - ' if _ else before}{call} OVER (PARTITION BY {key} {counted})"
    rows = "{0}" if not late else "(SELECT * FROM {0} WHERE _w IS NULL OR ts >= _w) AS timely"
    return (
        (f'{{0}}.group_by("{key}").over({arguments}).agg(n="CAST({value} AS bigint)").named("{{me}}")'),
        f"SELECT {COLUMNS}, CAST({query} AS BIGINT) AS n, {NONE} FROM {rows}",
        Shape(
            table=corrected,
            timed=not corrected,
            waits=shapes[0].waits or not corrected,
            extra=("n",),
            late_rows=f"SELECT {COLUMNS} FROM {{0}} WHERE ts < _w" if late else None,
        ),
    )


def _match(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    """Two rows that follow each other, of which the second one is greater; every row may be the first."""
    late, key, within = shapes[0].late, dice.choice(("k", "g")), dice.choice((0, 3, 20))
    other = "g" if key == "k" else "k"
    rows = "{0}" if not late else "(SELECT * FROM {0} WHERE _w IS NULL OR ts >= _w) AS timely"
    following = "row_number() OVER (PARTITION BY {by} ORDER BY ts, {order}) AS _place"
    placed = f"(SELECT *, {following.format(by=key, order=ASCENDING)} FROM {rows})"
    same_key = f"a.{key} IS NOT DISTINCT FROM b.{key} AND b._place = a._place + 1"
    columns = ", ".join(f"{'b' if name in ('v', 'ts') else 'a'}.{name}" for name in COLUMNS.split(", "))
    return (
        (
            f'{{0}}.group_by("{key}").match("one two", within="{within} seconds", define=dict(two="v > prev(v)"), '
            f'after="next row").agg(id="first(id)", {other}="one.{other}", v="two.v", ts="last(ts)").named("{{me}}")'
            '.select("id", "k", "g", "v", "ts")'
        ),
        (
            f"SELECT {columns}, {NONE} FROM {placed} AS a JOIN {placed} AS b ON {same_key} "
            f"WHERE b.v > a.v AND b.ts - a.ts <= {within * SECOND}"
        ),
        Shape(table=False, timed=False, waits=True),
    )


def _counted(_: Random, shapes: tuple[Shape, ...]) -> Drawn:
    return (
        '{0}.select("id", "k", "g", v="coalesce(v, 0) + coalesce(n, 0)", ts="ts")',
        f"SELECT id, k, g, coalesce(v, 0) + coalesce(n, 0) AS v, ts, {NONE} FROM {{0}}",
        replace(same(shapes), extra=(), late=False),
    )


SUMS = ("sum(v)", "count(v)", "max(v)", "min(v)")
FIRSTS = ("first_value(v)", "last_value(v)")
PLACES = ("row_number()", "lag(v)", "v - lag(v, 2)")


def _frame(dice: Random, value: str) -> tuple[str, str]:
    """Return the argument and the order and frame in SQL; of rows of one time only sums are the same in any order."""
    first, last = dice.choice((1, 2, 3)), dice.choice((0, 0, 1))
    placed = f"ORDER BY ts, {ASCENDING}"
    until = f"{last} PRECEDING" if last else "CURRENT ROW"
    frames = [
        ("", f"{placed} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"),
        (f"rows=({first}, {last})", f"{placed} ROWS BETWEEN {first} PRECEDING AND {until}"),
        (f'range="{first} seconds"', f"ORDER BY ts RANGE BETWEEN {first * SECOND} PRECEDING AND CURRENT ROW"),
    ]
    if value in SUMS:
        return dice.choice(frames)
    if value in FIRSTS:
        return dice.choice(frames[:2])
    return dice.choice(frames[:2])[0], placed


def _ties(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    """Rows that the order leaves equal are there together; how many may be a key."""
    ties = dice.choice(("rank", "dense_rank"))
    keys = dice.choice((("k",), ("g",), ("k", "g"), ()))
    of_key = "g" in keys and dice.random() < 0.5
    count = "g" if of_key else str(dice.randint(1, 2))
    order = dice.choice(("v desc nulls last", "v asc nulls first", "k asc nulls first, v desc nulls last"))
    listed = ", ".join(f'"{key}"' for key in keys)
    over = f"PARTITION BY {', '.join(keys)} " if keys else ""
    given = f'"{count}"' if of_key else count
    return (
        f'{{0}}.group_by({listed}).top({given}, "{order}", ties="{ties}").named("{{me}}"){SELECTED}',
        (
            f"SELECT {COLUMNS}, {NONE} FROM "
            f"(SELECT *, {ties}() OVER ({over}ORDER BY {order}) AS _place FROM {{0}}) WHERE _place <= {count}"
        ),
        Shape(table=True, waits=shapes[0].waits),
    )


def _top_of_windows(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    """The first rows of each window."""
    late = shapes[0].late
    bounds, rows = aligned(kind := dice.choice(("tumbling", "hopping", "cumulating")), dice)
    final = dice.random() < 0.3
    grace = grace_of(dice, shapes[0])
    kept = f" WHERE _w IS NULL OR window_end + {GRACE * SECOND} > _w" if late else ""
    count, order = dice.randint(1, 2), "v desc nulls last, id asc nulls first"
    place = (
        f"row_number() OVER (PARTITION BY k, window_start, window_end ORDER BY {order}, g NULLS FIRST, ts NULLS FIRST)"
    )
    emit = ', emit="final"' if final else ""
    return (
        (
            f'{{0}}.group_by("k").window(hr.{kind}({bounds}, grace="{grace}"){emit}).top({count}, "{order}")'
            '.named("{me}")'
        ),
        (
            f"SELECT k, window_start, window_end, id, g, v, ts FROM (SELECT *, {place} AS _place FROM "
            f"(SELECT * FROM ({rows}){kept})) WHERE _place <= {count}"
        ),
        replace(
            same(shapes),
            table=True,
            source=False,
            waits=final or shapes[0].waits,
            extra=("window_start", "window_end"),
        ),
    )


def _suppress(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    often = dice.choice(('"5 seconds"', "size=1", '"20 seconds", size=2'))
    return (
        f'{{0}}.suppress({often}).named("{{me}}")',
        "SELECT * FROM {0}",
        replace(same(shapes), waits=True, source=False),
    )


def _last_window(_: Random, shapes: tuple[Shape, ...]) -> Drawn:
    """The latest closed window of each group."""
    place = "row_number() OVER (PARTITION BY k ORDER BY window_end DESC)"
    return (
        '{0}.where("k IS NOT NULL").latest().named("{me}")',
        (
            "SELECT k, window_start, window_end, id, g, v FROM "
            f"(SELECT *, {place} AS _place FROM {{0}} WHERE k IS NOT NULL) WHERE _place = 1"
        ),
        replace(same(shapes), waits=True, source=False, late=False),
    )


def _explode(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    some = dice.random() < 0.5
    values = "array(CAST(g AS bigint), v)"
    array = f"CASE WHEN v > 0 THEN {values} END" if some else values
    return (
        f'{{0}}.explode("{array}", "e").select(id="id", k="k", g="g", v="e", ts="ts")',
        (
            f"SELECT id, k, g, CASE WHEN n = 0 THEN CAST(g AS BIGINT) ELSE v END AS v, ts, {NONE} FROM {{0}} "
            f"CROSS JOIN (VALUES (0), (1)) AS places(n){' WHERE v > 0' if some else ''}"
        ),
        replace(same(shapes), source=False, timed=shapes[0].timed and not shapes[0].table),
    )


def _mixed_union(_: Random, shapes: tuple[Shape, ...]) -> Drawn:
    return (
        "{0}.union({1})",
        f"SELECT {COLUMNS}, {NONE} FROM {{0}} UNION ALL SELECT {COLUMNS}, {NONE} FROM {{1}}",
        Shape(table=True, waits=any(shape.waits for shape in shapes)),
    )


NO_TIME = "CAST(NULL AS timestamp)"
OF_ONE = (
    "SELECT count(*) AS id, k, g, sum(v) AS v, max(ts) AS ts FROM x GROUP BY ROLLUP (k, g) HAVING count(*) > 0",
    "SELECT count(v) AS id, k, g, min(v) AS v, max(ts) AS ts FROM x GROUP BY CUBE (k, g) HAVING count(*) > 0",
    "SELECT count(*) AS id, k, g, max(v) AS v, max(ts) AS ts FROM x GROUP BY GROUPING SETS ((k), (g))",
    "SELECT id, k, g, v, ts FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM x) WHERE r <= 2",
    "SELECT id, k, g, v, ts FROM x WHERE v > (SELECT min(x2.v) FROM x x2)",
    "SELECT id, k, g, v, ts FROM x WHERE k IN (SELECT w.k FROM (VALUES ('a'), ('b')) AS w(k))",
    "SELECT id, k, g, (SELECT max(x2.v) FROM x x2 WHERE x2.k = x.k) AS v, ts FROM x",
)
OF_TWO = (
    "SELECT id, k, g, v, ts FROM x WHERE v > 1 OR k IN (SELECT k FROM y)",
    "SELECT id, k, g, v, ts FROM x WHERE v NOT IN (SELECT v FROM y)",
    "SELECT id, k, g, v, ts FROM x WHERE g = 1 OR EXISTS (SELECT 1 FROM y WHERE y.k = x.k)",
    "SELECT id, k, g, v, ts FROM x WHERE v > 0 AND NOT EXISTS (SELECT 1 FROM y WHERE y.g = x.g AND y.v > x.v)",
    "SELECT id, k, g, CASE WHEN k IN (SELECT k FROM y) THEN v ELSE -1 END AS v, ts FROM x",
    "SELECT id, k, g, (SELECT count(*) FROM y WHERE y.k = x.k AND y.v < x.v) AS v, ts FROM x",
    "SELECT id, k, g, (SELECT sum(y.v) FROM y WHERE y.g = x.g) AS v, ts FROM x",
    "SELECT min(x.id) AS id, k, max(y.g) AS g, sum(x.v) AS v, max(x.ts) AS ts FROM x JOIN y USING (k) GROUP BY k",
    *(
        f"SELECT 0 AS id, k, g, v, {NO_TIME} AS ts FROM (SELECT k, g, v FROM x {both} SELECT k, g, v FROM y)"
        for both in ("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL", "UNION")
    ),
)


def _sql_of_one(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    return _sql(dice.choice(OF_ONE), shapes)


def _sql_of_two(dice: Random, shapes: tuple[Shape, ...]) -> Drawn:
    return _sql(dice.choice(OF_TWO), shapes)


def _sql(text: str, shapes: tuple[Shape, ...]) -> Drawn:
    """The oracle answers the same text over the queries of the inputs, whose times are integers."""
    names = ("x", "y")[: len(shapes)]
    given = ", ".join(f"{name}={{{at}}}" for at, name in enumerate(names))
    inputs = ", ".join(f"{name} AS (SELECT {COLUMNS} FROM {{{at}}})" for at, name in enumerate(names))
    query = text.replace(NO_TIME, "CAST(NULL AS BIGINT)")
    return (
        (
            f'app.sql("{text}", name="{{me}}", {given})'
            '.select(id="CAST(id AS int)", k="k", g="g", v="CAST(v AS bigint)", ts="ts")'
        ),
        (
            f"SELECT CAST(id AS INT) AS id, k, g, CAST(v AS BIGINT) AS v, ts, {NONE} "
            f"FROM (WITH {inputs} {query}) AS answers"
        ),
        Shape(table=True, waits=any(shape.waits for shape in shapes)),
    )


NEWER = (
    Word("as table", stream, _as_table),
    Word("as table", stream, _as_table),
    Word("over", lambda s: plain(s) and s[0].timed and (not s[0].late or s[0].source), _over),
    Word("over", lambda s: stream(s) and s[0].timed, _over),
    Word("match", lambda s: stream(s) and s[0].timed and (not s[0].late or s[0].source), _match),
    Word("counted", lambda s: s[0].extra == ("n",), _counted),
    Word("counted", lambda s: s[0].extra == ("n",), _counted),
    Word("ties", lambda s: plain(s) and not s[0].late, _ties),
    Word("top of windows", lambda s: stream(s) and s[0].timed, _top_of_windows),
    Word("suppress", lambda s: s[0].table and s[0].key is not None and not s[0].late, _suppress),
    Word("latest window", lambda s: s[0].final, _last_window),
    Word("latest window", lambda s: s[0].final, _last_window),
    Word("latest window", lambda s: s[0].final, _last_window),
    Word("latest window", lambda s: s[0].final, _last_window),
    Word("latest window", lambda s: s[0].final, _last_window),
    Word("latest window", lambda s: s[0].final, _last_window),
    Word("explode", lambda s: plain(s) and not s[0].late, _explode),
    Word("mixed union", lambda s: plain(s) and s[0].table and not s[1].table and not s[1].late, _mixed_union, 2),
    Word("sql", tables, _sql_of_one),
    Word("sql", tables, _sql_of_two, 2),
    Word("sql", tables, _sql_of_two, 2),
)
