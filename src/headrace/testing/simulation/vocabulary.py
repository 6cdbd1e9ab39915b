"""The words that a simulated program is made of: each verb in Python beside its batch query in SQL.

The SQL means the same in DuckDB and in Spark. Times are integers there, microseconds; every relation has the columns of
`case.COLUMNS` and two hidden ones: `_seq`, the place of the record in the order of all that was sent, and `_w`, the
watermark of its source when it was read. Both are null where they mean nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.testing.simulation.case import EVER
from headrace.testing.simulation.growing import NEWER, aligned
from headrace.testing.simulation.shapes import (
    GRACE,
    NONE,
    SECOND,
    SUMMARIES,
    Shape,
    Word,
    grace_of,
    plain,
    same,
    stream,
    tables,
    timed,
)

if TYPE_CHECKING:
    from random import Random

CONDITIONS = ("v > 0", "g IS NULL OR g <> 1", "k <> 'b'", "v IS NOT NULL", "v % 2 = 0 OR k = 'a'", "id > 2")
VALUES = ("v + 1", "coalesce(v, 0)", "v * 2 - g", "CASE WHEN g = 1 THEN NULL ELSE v END")


def _where_of(condition: str) -> tuple[str, str]:
    return f'{{0}}.where("{condition}")', f"SELECT * FROM {{0}} WHERE {condition}"


def _values_of(value: str) -> tuple[str, str]:
    return (
        f'{{0}}.with_columns(v="CAST({value} AS bigint)")',
        f"SELECT id, k, g, CAST({value} AS BIGINT) AS v, ts, _seq, _w FROM {{0}}",
    )


def _where(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    return *_where_of(dice.choice(CONDITIONS)), same(shapes)


def _values(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    return *_values_of(dice.choice(VALUES)), same(shapes)


def other_step(dice: Random, code: str) -> tuple[str, str] | None:
    """Return a step's code and query with another condition or another value; None where it has neither."""
    if code.startswith("{0}.where("):
        return _where_of(dice.choice([each for each in CONDITIONS if each not in code]))
    if code.startswith("{0}.with_columns("):
        return _values_of(dice.choice([each for each in VALUES if each not in code]))
    return None


def _branch(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    first, second = dice.sample(CONDITIONS, 2)
    which = dice.choice(("one", "two", None))
    test = {"one": f"coalesce({first}, false)", "two": f"NOT coalesce({first}, false) AND coalesce({second}, false)"}
    rest = f"NOT coalesce({first}, false) AND NOT coalesce({second}, false)"
    return (
        f'{{0}}.branch(one="{first}", two="{second}")[{which!r}]',
        f"SELECT * FROM {{0}} WHERE {test[which] if which else rest}",
        same(shapes),
    )


def _project(_: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    return (
        '{0}.select("id", "k", "g", "v", ts="window_start")',
        f"SELECT id, k, g, v, window_start AS ts, {NONE} FROM {{0}}",
        replace(same(shapes), extra=(), source=False, timed=False, late=False),
    )


def _summary(dice: Random, keys: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the aggregates in Python, the select that gives them the columns of all steps, and the same in SQL."""
    sums = {"id": "min(id)", "k": "max(k)", "g": "CAST(count(v) AS int)", "v": dice.choice(SUMMARIES), "ts": "max(ts)"}
    own = {name: sql for name, sql in sums.items() if name not in keys}
    code = ", ".join(f'{name}="CAST({sql} AS bigint)"' if name == "v" else f'{name}="{sql}"'
                     for name, sql in own.items())  # fmt: skip
    given = {name: f"CAST({sql} AS BIGINT)" if name == "v" else sql for name, sql in sums.items()}
    query = ", ".join(name if name in keys else f"{sql} AS {name}" for name, sql in given.items())
    return code, '.select("id", "k", "g", "v", "ts")', query


def _agg(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    keys = dice.choice((("k",), ("g",), ("k", "g"), ("k",), ()))
    code, select, query = _summary(dice, keys)
    listed = ", ".join(f'"{key}"' for key in keys)
    by = f"GROUP BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"
    return (
        f'{{0}}.group_by({listed}).agg({code}).named("{{me}}"){select}',
        f"SELECT {query}, {NONE} FROM {{0}} {by}",
        Shape(table=True, waits=shapes[0].waits),
    )


def _distinct(_: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    text = ("SELECT count(*) AS id, k, g, max(v) AS v, max(ts) AS ts FROM "
            "(SELECT DISTINCT k, g, v, ts FROM x) GROUP BY k, g")  # fmt: skip
    return (
        f'app.sql("{text}", name="{{me}}", x={{0}}).select(id="CAST(id AS int)", k="k", g="g", v="v", ts="ts")',
        f"SELECT CAST(id AS INT) AS id, k, g, v, ts, {NONE} FROM ({text.replace(' x)', ' {0})')})",
        Shape(table=True, waits=shapes[0].waits),
    )


def _dedupe(_: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    """Which row of a key comes first depends on the cut; that one does, not."""
    return (
        (
            f'{{0}}.dedupe("k", "g", within="{EVER}").named("{{me}}")'
            '.select("k", "g", id="0", v="CAST(1 AS bigint)", ts="CAST(NULL AS timestamp)")'
            '.select("id", "k", "g", "v", "ts")'
        ),
        "SELECT DISTINCT 0 AS id, k, g, CAST(1 AS BIGINT) AS v, CAST(NULL AS BIGINT) AS ts, " + NONE + " FROM {0}",
        Shape(table=False, waits=shapes[0].waits),
    )


def _top(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    keys = dice.choice((("k",), ("g",), ()))
    count = dice.randint(1, 3)
    rest = [name for name in ("v", "id", "g", "k", "ts") if name not in keys]
    first = dice.choice(rest)
    order = ", ".join([f"{first} desc nulls last", *(f"{name} asc nulls first" for name in rest if name != first)])
    listed = ", ".join(f'"{key}"' for key in keys)
    over = f"PARTITION BY {', '.join(keys)} " if keys else ""
    ranked = f"SELECT *, row_number() OVER ({over}ORDER BY {order}) AS _place FROM {{0}}"
    rank = dice.choice(("", ', rank="place"'))
    return (
        f'{{0}}.group_by({listed}).top({count}, "{order}"{rank}).named("{{me}}").select("id", "k", "g", "v", "ts")',
        f"SELECT id, k, g, v, ts, {NONE} FROM ({ranked}) WHERE _place <= {count}",
        Shape(table=True, waits=shapes[0].waits),
    )


def _latest(_: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    ranked = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY ts DESC, _seq DESC) AS _place FROM {0}"
    return (
        '{0}.latest("id").named("{me}")',
        f"SELECT id, k, g, v, ts, {NONE} FROM ({ranked}) WHERE _place = 1",
        Shape(table=True, waits=shapes[0].waits),
    )


def _union(_: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    return (
        "{0}.union({1})",
        f"SELECT id, k, g, v, ts, {NONE} FROM {{0}} UNION ALL SELECT id, k, g, v, ts, {NONE} FROM {{1}}",
        Shape(
            table=shapes[0].table,
            timed=all(shape.timed for shape in shapes),
            waits=any(shape.waits for shape in shapes),
        ),
    )


JOINED = '.select(id="id", k="k", g="coalesce(g, 0) + coalesce(g_right, 0)", v="coalesce(v_right, v)", ts="{ts}")'


def _table_join(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    how = dice.choice(("inner", "left", "right", "full", "semi", "anti"))
    on = dice.choice(("k", "id"))
    shape = Shape(table=True, waits=any(each.waits for each in shapes))
    if how in ("semi", "anti"):
        code = f'{{0}}.join({{1}}, on="{on}", how="{how}").named("{{me}}")'
        test = "EXISTS" if how == "semi" else "NOT EXISTS"
        where = f"WHERE {test} (SELECT 1 FROM {{1}} r WHERE r.{on} = l.{on})"
        return code, f"SELECT id, k, g, v, ts, {NONE} FROM {{0}} l {where}", shape
    other = "id" if on == "k" else "k"
    shared = f"coalesce(l.{on}, r.{on}) AS {on}"
    columns = ", ".join(shared if name == on else f"l.{other} AS {other}" for name in ("id", "k"))
    return (
        f'{{0}}.join({{1}}, on="{on}", how="{how}").named("{{me}}")' + JOINED.format(ts="coalesce(ts, ts_right)"),
        (
            f"SELECT {columns}, coalesce(l.g, 0) + coalesce(r.g, 0) AS g, coalesce(r.v, l.v) AS v, "
            f"coalesce(l.ts, r.ts) AS ts, {NONE} FROM {{0}} l {how.upper()} JOIN {{1}} r ON l.{on} = r.{on}"
        ),
        shape,
    )


def _stream_join(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    how = dice.choice(("inner", "left", "right", "full", "semi", "anti"))
    first, last = dice.choice(((-10, 10), (0, 20), (-3, 0), (1, 20)))
    grace = dice.choice((EVER, "0 seconds")) if all(shape.ordered for shape in shapes) else EVER
    if how in ("semi", "anti"):
        return (
            (
                f'{{0}}.join({{1}}, on="k", within=("{first} seconds", "{last} seconds"), how="{how}", grace="{grace}")'
                '.named("{me}")'
            ),
            (
                f"SELECT id, k, g, v, ts, {NONE} FROM {{0}} l WHERE {'NOT ' if how == 'anti' else ''}EXISTS "
                f"(SELECT 1 FROM {{1}} r WHERE l.k = r.k AND r.ts - l.ts BETWEEN {first * SECOND} AND {last * SECOND})"
            ),
            Shape(table=False, waits=how == "anti" or any(each.waits for each in shapes)),
        )
    later = "CASE WHEN {l} IS NULL OR {r} > {l} THEN {r} ELSE {l} END"
    return (
        f'{{0}}.join({{1}}, on="k", within=("{first} seconds", "{last} seconds"), how="{how}", grace="{grace}")'
        f'.named("{{me}}")' + JOINED.format(ts=later.format(l="ts", r="ts_right")),
        (
            "SELECT l.id AS id, coalesce(l.k, r.k) AS k, coalesce(l.g, 0) + coalesce(r.g, 0) AS g, "
            "coalesce(r.v, l.v) AS v, "
            f"{later.format(l='l.ts', r='r.ts')} AS ts, {NONE} FROM {{0}} l {how.upper()} JOIN {{1}} r "
            f"ON l.k = r.k AND r.ts - l.ts BETWEEN {first * SECOND} AND {last * SECOND}"
        ),
        Shape(table=False, timed=True, waits=how != "inner" or any(each.waits for each in shapes)),
    )


LOOKED_UP = "SELECT l.id, l.k, coalesce(l.g, 0) + coalesce(r.g, 0) AS g, coalesce(r.v, l.v) AS v, l.ts AS ts, "


def _lookup(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    how, on = dice.choice(("inner", "left")), dice.choice(("id", "k"))
    return (
        f'{{0}}.join({{1}}, on="{on}", how="{how}").named("{{me}}")' + JOINED.format(ts="ts"),
        (
            f"{LOOKED_UP}{NONE} FROM {{0}} l {how.upper()} JOIN {{1}}_log r ON l.{on} = r.{on} "
            "AND r._seq < l._seq AND (r._until IS NULL OR l._seq < r._until) AND NOT r._deleted"
        ),
        Shape(table=False, waits=shapes[0].waits),
    )


QUERIES = (
    ("k", "{l} LIKE concat('% ', r.k, ' %') AND r.k <> ''"),
    ("k || ' OR 1'", "({l} LIKE concat('% ', r.k, ' %') OR {l} LIKE '% 1 %') AND r.k <> ''"),
    ("'2 -' || k", "{l} LIKE '% 2 %' AND {l} NOT LIKE concat('% ', r.k, ' %') AND r.k <> ''"),
    ("k || '-2'", "{l} LIKE concat('% ', r.k, ' 2 %') AND r.k <> ''"),
    ("upper(k) || '*'", "{l} LIKE concat('% ', r.k, '%') AND r.k <> ''"),
    (
        "'+' || k || ' (2 OR 7)'",
        "{l} LIKE concat('% ', r.k, ' %') AND ({l} LIKE '% 2 %' OR {l} LIKE '% 7 %') AND r.k <> ''",
    ),
)
"""Queries of a table's row, and what they mean over the words of a text between blanks. Of an empty `k` they
cannot be read, and meet nothing."""
TEXT = "concat_ws(' ', {k}, CAST(g AS string), CAST(v AS string))"


def _search(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    queries, meets = zip(*dice.sample(QUERIES, 2), strict=True)
    text = TEXT.format(k=dice.choice(("k", "upper(k)")))
    query = f"CASE WHEN g = 1 THEN {queries[0]} ELSE {queries[1]} END"
    words = "(concat(' ', concat_ws(' ', l.k, CAST(l.g AS STRING), replace(CAST(l.v AS STRING), '-', '')), ' '))"
    test = f"CASE WHEN r.g = 1 THEN {meets[0]} ELSE {meets[1]} END".format(l=words)
    return (
        f'{{0}}.search({{1}}.with_columns(query="{query}"), text="{text}", query="query").named("{{me}}")'
        + JOINED.format(ts="ts"),
        (
            f"{LOOKED_UP}{NONE} FROM {{0}} l JOIN {{1}}_log r ON r._seq < l._seq "
            f"AND (r._until IS NULL OR l._seq < r._until) AND NOT r._deleted AND {test}"
        ),
        Shape(table=False, waits=shapes[0].waits),
    )


def _as_of(dice: Random, _shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    how = dice.choice(("inner", "left"))
    versions = "SELECT *, lead(ts) OVER (PARTITION BY id ORDER BY ts, _seq) AS _next FROM {1}_log"
    return (
        f'{{0}}.join({{1}}, on="id", as_of="ts", how="{how}", grace="{EVER}").named("{{me}}")' + JOINED.format(ts="ts"),
        (
            f"{LOOKED_UP}{NONE} FROM {{0}} l {how.upper()} JOIN ({versions}) r ON l.id = r.id "
            "AND r.ts <= l.ts AND (r._next IS NULL OR l.ts < r._next) AND NOT r._deleted"
        ),
        Shape(table=False, waits=True),
    )


def _sliding() -> tuple[str, str]:
    s = 6 * SECOND
    same = "a.k IS NOT DISTINCT FROM b.k"
    bounds = (
        f"SELECT DISTINCT k, ts - {s} AS window_start, ts AS window_end FROM {{0}} UNION "
        f"SELECT DISTINCT a.k, a.ts + 1, a.ts + 1 + {s} FROM {{0}} a JOIN {{0}} b "
        f"ON {same} AND b.ts > a.ts AND b.ts <= a.ts + 1 + {s}"
    )
    return '"6 seconds"', (
        f"SELECT a.*, b.window_start, b.window_end FROM {{0}} a JOIN ({bounds}) b "
        f"ON {same} AND a.ts BETWEEN b.window_start AND b.window_end"
    )


def _session() -> tuple[str, str]:
    s = 4 * SECOND
    new = f"CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= {s} THEN 0 ELSE 1 END"
    rows = "PARTITION BY k ORDER BY ts, _new DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    numbered = f"SELECT *, sum(_new) OVER ({rows}) AS _s FROM (SELECT *, {new} AS _new FROM {{0}})"
    bounds = "min(ts) OVER (PARTITION BY k, _s) AS window_start, max(ts) OVER (PARTITION BY k, _s)"
    return '"4 seconds"', f"SELECT *, {bounds} + {s} AS window_end FROM ({numbered})"


EMITS = (("", False),) * 3 + ((', emit="final"', True), (', emit="final"', True), (', emit="every 8 seconds"', True))
"""When results come out, and whether they are complete only once the input has ended."""


def _window(dice: Random, shapes: tuple[Shape, ...]) -> tuple[str, str, Shape]:
    late = shapes[0].late
    kinds = (
        ("tumbling", "hopping", "cumulating") if late else ("tumbling", "hopping", "cumulating", "sliding", "session")
    )
    kind = dice.choice(kinds)
    bounds, rows = _sliding() if kind == "sliding" else _session() if kind == "session" else aligned(kind, dice)
    emit, waits = dice.choice(EMITS)
    grace = grace_of(dice, shapes[0])
    value = dice.choice(SUMMARIES)
    kept = f" WHERE _w IS NULL OR window_end + {GRACE * SECOND} > _w" if late else ""
    query = (
        "SELECT k, window_start, window_end, min(id) AS id, CAST(count(*) AS INT) AS g, "
        f"CAST({value} AS BIGINT) AS v "
        f"FROM (SELECT * FROM ({rows}){kept}) GROUP BY k, window_start, window_end"
    )
    return (
        (
            f'{{0}}.group_by("k").window(hr.{kind}({bounds}, grace="{grace}"){emit})'
            f'.agg(id="min(id)", g="CAST(count(*) AS int)", v="CAST({value} AS bigint)").named("{{me}}")'
        ),
        query,
        replace(
            same(shapes),
            table=True,
            source=False,
            waits=waits or shapes[0].waits,
            extra=("window_start", "window_end"),
            final="final" in emit,
            late_rows=late_rows(query) if late and "every" not in emit else None,
        ),
    )


def late_rows(window_query: str) -> str | None:
    """Return the query of the rows that are late for a window, made of its query; None where nothing is."""
    inner = window_query.partition("FROM (SELECT * FROM (")[2].partition(") WHERE _w IS NULL OR ")
    if not inner[1]:
        return None
    rows, test = inner[0], inner[2].partition(") GROUP BY")[0]
    return (
        "SELECT id, k, g, v, ts FROM (SELECT _seq, id, k, g, v, ts FROM "
        f"(SELECT *, CASE WHEN _w IS NULL OR {test} THEN 1 ELSE 0 END AS _open FROM ({rows})) "
        "GROUP BY _seq, id, k, g, v, ts HAVING max(_open) = 0)"
    )


WORDS = (
    Word("where", plain, _where),
    Word("values", plain, _values),
    Word("branch", stream, _branch),
    Word("agg", lambda s: plain(s) and not s[0].late, _agg),
    Word("agg", tables, _agg),
    Word("distinct", lambda s: plain(s) and not s[0].late, _distinct),
    Word("dedupe", lambda s: stream(s) and not s[0].late, _dedupe),
    Word("top", lambda s: plain(s) and not s[0].late, _top),
    Word("latest", lambda s: timed(s) and s[0].source, _latest),
    Word("window", lambda s: plain(s) and s[0].timed, _window),
    Word("window", lambda s: stream(s) and s[0].timed, _window),
    Word("project", lambda s: "window_start" in s[0].extra, _project),
    Word("project", lambda s: "window_start" in s[0].extra, _project),
    Word("union", lambda s: (stream(s) or tables(s)) and not any(x.late for x in s), _union, 2),
    Word("table join", tables, _table_join, 2),
    Word("table join", tables, _table_join, 2),
    Word("stream join", timed, _stream_join, 2),
    Word("stream join", timed, _stream_join, 2),
    Word("stream join", timed, _stream_join, 2),
    Word("as of", lambda s: plain(s) and timed(s[:1]) and s[0].source and s[1].records and s[1].timed, _as_of, 2),
    Word("as of", lambda s: plain(s) and timed(s[:1]) and s[0].source and s[1].records and s[1].timed, _as_of, 2),
    Word("as of", lambda s: plain(s) and timed(s[:1]) and s[0].source and s[1].records and s[1].timed, _as_of, 2),
    Word("lookup", lambda s: plain(s) and timed(s[:1]) and s[0].source and s[1].records, _lookup, 2),
    Word("lookup", lambda s: plain(s) and timed(s[:1]) and s[0].source and s[1].records, _lookup, 2),
    Word("search", lambda s: plain(s) and timed(s[:1]) and s[0].source and s[1].records, _search, 2),
    *NEWER,
)
