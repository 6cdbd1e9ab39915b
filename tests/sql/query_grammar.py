"""The grammar of random queries: SQL over a few tables and streams, which means the same in Spark and DuckDB.

Whole numbers, texts, nulls, orders without ties; windows are written in two ways, one for each.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import sqlglot

from headrace.base.schema import parse

if TYPE_CHECKING:
    import random

INT, TEXT, REAL, MONEY, TIME, TRUTH = "int", "text", "real", "money", "time", "truth"
SCHEMAS = {
    "a": ("id int, k int, v bigint, s string, f double", ("id",)),
    "b": ("id int, k bigint, w int, s string, m decimal(5,2)", ("id",)),
    "c": ("k int, j int, v int, t timestamp", ("k", "j")),
    "d": ("k int, v int, s string, o boolean", None),
    "e": ("f double, m decimal(7,3), t timestamp, v smallint", ("f", "m")),
    "p": ("k int, v int, s string, at timestamp", None),
    "q": ("k int, w int, at timestamp", None),
}
"""Tables by their key; `d` is a stream that is read as a growing table: it has equal rows. `p` and `q` are streams."""
HOPS = ((10, 10), (7, 7), (10, 5))
"""Minutes: how long windows are, and how often one begins."""
MINUTES = tuple(datetime(2026, 1, 1, 0, minute, second, tzinfo=UTC) for minute in range(0, 40, 3) for second in (0, 30))
DAYS = tuple(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
DOMAINS = {
    "id": range(8),
    "k": (0, 1, 2, 3),
    "j": (0, 1, 2),
    "s": ("x", "y", "Z"),
    "f": (0.0, 1.0, 2.5, -1.0, math.nan),
    "m": (Decimal("0.00"), Decimal("1.00"), Decimal("2.50")),
    "t": DAYS,
    "o": (True, False),
    "at": MINUTES,
}
CONSTANTS = {
    INT: ("0", "1", "1", "2", "3"),
    TEXT: ("'x'", "'y'", "'Z'", "'q'"),
    REAL: ("cast(0 as double)", "cast(1 as double)", "cast(2.5 as double)"),
    MONEY: ("1.0", "2.50", "0.000"),
    TIME: tuple(f"timestamp '{day:%Y-%m-%d} 00:00:00'" for day in DAYS),
    TRUTH: ("true", "false"),
}
SETS = ("union all", "union", "intersect", "except", "intersect all", "except all")
ORDERS = ("", "", " desc", " desc", " nulls last", " desc nulls first")
KINDS = (INT, INT, INT, TEXT, TEXT, REAL, MONEY, TIME, TRUTH)
OF_TYPES = {"string": TEXT, "double": REAL, "bool": TRUTH}


class Column(NamedTuple):
    """A column that a query may read: how it is written there, and its type."""

    sql: str
    kind: str


@dataclass
class Queries:
    """Draws queries. `deep` is how often a query may be inside another."""

    dice: random.Random
    names: count = field(default_factory=count)

    def query(self, deep: int, kinds: tuple[str, ...] | None = None) -> tuple[str, tuple[str, ...]]:
        """Return a query and the types of its columns, `c0`, `c1` and so on; those of `kinds` if it is given."""
        kinds = kinds or tuple(self.dice.choice(KINDS) for _ in range(self.dice.choice((1, 2, 2, 3))))
        form = self.dice.choices(
            (self._plain, self._grouped, self._distinct, self._sets, self._first, self._limited, self._common),
            (4, 5, 1, 2 if deep else 0, 2, 1, 1 if deep else 0),
        )[0]
        return form(deep, kinds), kinds

    # ---- forms ----

    def _plain(self, deep: int, kinds: tuple[str, ...]) -> str:
        source, scope = self._from(deep)
        return f"select {self._selected(scope, kinds, deep)} from {source}{self._where(scope, deep)}"

    def _distinct(self, deep: int, kinds: tuple[str, ...]) -> str:
        source, scope = self._from(deep)
        return f"select distinct {self._selected(scope, kinds, deep)} from {source}{self._where(scope, deep)}"

    def _grouped(self, deep: int, kinds: tuple[str, ...]) -> str:
        if self.dice.random() < 0.2:
            return self._windowed(kinds)
        source, scope = self._from(deep)
        keys = [self.dice.choice(scope) for _ in range(self.dice.choice((1, 1, 2)))]
        keys = list(dict.fromkeys(keys))
        if self.dice.random() < 0.2:
            keys[0] = Column(self._value(scope, keys[0].kind, 0), keys[0].kind)
        by = ", ".join(key.sql for key in keys)
        if len(keys) == 2 and self.dice.random() < 0.4:
            by = self.dice.choice((f"rollup({by})", f"cube({by})", f"grouping sets (({by}), ({keys[1].sql}), ())"))
        named = []
        for at, kind in enumerate(kinds):
            fitting = [key.sql for key in keys if key.kind == kind]
            of_key = fitting and self.dice.random() < 0.4 and "(" not in by
            named.append(f"{self.dice.choice(fitting) if of_key else self._aggregate(scope, kind)} as c{at}")
        having = f" having {self._aggregate(scope, INT)} > {self._number()}" if self.dice.random() < 0.3 else ""
        if "(" in by:  # a total of no rows at all is no row here (docs/sql.md)
            having = f"{having} and count(*) > 0" if having else " having count(*) > 0"
        return f"select {', '.join(named)} from {source}{self._where(scope, deep)} group by {by}{having}"

    def _windowed(self, kinds: tuple[str, ...]) -> str:
        """Return a query over streams, of groups and most often windows; DuckDB asks for windows in other words."""
        name = f"t{next(self.names)}"
        source, scope, time = f"p {name}", _scope("p", name), f"{name}.at"
        if self.dice.random() < 0.4:
            other = f"t{next(self.names)}"
            how = self.dice.choice(("join", "join", "left semi join"))
            near = f"{other}.at between {time} - interval 5 minutes and {time} + interval 3 minutes"
            source += f" {how} q {other} on {name}.k = {other}.k and {near}"
            if how == "join":
                scope, time = [*scope, *_scope("q", other)], f"greatest({time}, {other}.at)"
        where = self._where(scope, 0)
        if self.dice.random() < 0.25:
            chosen = ", ".join(f"{self._aggregate(scope, kind)} as c{at}" for at, kind in enumerate(kinds))
            return f"select {chosen} from {source}{where} group by {self.dice.choice(scope).sql}"
        size, every = self.dice.choice(HOPS)
        hop = f"t{next(self.names)}"
        start = f"bucket({time}, {every}) - {hop}.back"
        bounds = {"start": start, "end": f"{start} + interval {size} minutes"}
        own, batch = [], []
        for at, kind in enumerate(kinds):
            bound = self.dice.choice(tuple(bounds)) if kind == TIME else ""
            value = self._aggregate(scope, kind)
            own.append(f"{f'window.{bound}' if bound else value} as c{at}")
            batch.append(f"{bounds.get(bound, value)} as c{at}")
        by = self.dice.choice(("", f", {self.dice.choice(scope).sql}"))
        window = f"window({time}, '{size} minutes', '{every} minutes')"
        hops = f"join hops {hop} on {hop}.size = {size} and {hop}.every = {every}"
        return (
            f"«select {', '.join(own)} from {source}{where} group by {window}{by}"
            f"¦select {', '.join(batch)} from {source} {hops}{where} group by {start}{by}»"
        )

    def _sets(self, deep: int, kinds: tuple[str, ...]) -> str:
        word = self.dice.choice(SETS)
        one, other = (self._plain_or_grouped(deep - 1, kinds) for _ in range(2))
        return f"{one} {word} {other}"

    def _plain_or_grouped(self, deep: int, kinds: tuple[str, ...]) -> str:
        return self.dice.choice((self._plain, self._grouped, self._distinct))(deep, kinds)

    def _first(self, deep: int, kinds: tuple[str, ...]) -> str:
        """Return a query of the first rows of each group."""
        source, scope = self._from(deep)
        chosen = self._selected(scope, kinds, 0)
        outer = ", ".join(f"c{at}" for at in range(len(kinds)))
        word = self.dice.choice(("row_number", "row_number", "rank", "dense_rank"))
        order = [f"c{at}" for at in range(len(kinds))] if word == "row_number" else ["c0"]
        order = [f"{name}{self.dice.choice(ORDERS)}" for name in order]
        by = self.dice.choice(scope).sql
        inner = f"select {chosen}, {by} as p from {source}{self._where(scope, deep)}"
        ranked = f"select *, {word}() over (partition by p order by {', '.join(order)}) as place from ({inner}) as i"
        limit = self.dice.choice((1, 2, 3))
        return f"select {outer} from ({ranked}) as r where place <= {limit}"

    def _limited(self, deep: int, kinds: tuple[str, ...]) -> str:
        order = ", ".join(f"c{at}{self.dice.choice(ORDERS)}" for at in range(len(kinds)))
        return f"select * from ({self._plain_or_grouped(deep, kinds)}) as l order by {order} limit {self._number() + 1}"

    def _common(self, deep: int, kinds: tuple[str, ...]) -> str:
        """Return a query that joins a common one with itself."""
        inner, has = self.query(deep - 1)
        name = f"w{next(self.names)}"
        left, right = (
            [Column(f"{alias}.c{at}", kind) for at, kind in enumerate(has)] for alias in (f"{name}l", f"{name}r")
        )
        if self.dice.random() < 0.3:
            one, other = (self._selected(side, kinds, 0) for side in (left, right))
            word = self.dice.choice(SETS)
            second = f"select {other} from {name} {name}r{self._where(right, 0)}"
            return f"with {name} as ({inner}) select {one} from {name} {name}l {word} {second}"
        how = self.dice.choice(("join", "left join", "full join"))
        on = f"{left[0].sql} = {right[0].sql}"
        chosen = self._selected(left + right, kinds, 0)
        return f"with {name} as ({inner}) select {chosen} from {name} {name}l {how} {name} {name}r on {on}"

    # ---- from ----

    def _from(self, deep: int) -> tuple[str, list[Column]]:
        text, scope = self._relation(deep)
        for _ in range(self.dice.choice((0, 0, 1, 1, 2))):
            text, scope = self._joined(text, scope, deep)
        return text, scope

    def _relation(self, deep: int) -> tuple[str, list[Column]]:
        name = f"t{next(self.names)}"
        if deep and self.dice.random() < 0.3:
            inner, kinds = self.query(deep - 1)
            return f"({inner}) as {name}", [Column(f"{name}.c{at}", kind) for at, kind in enumerate(kinds)]
        if self.dice.random() < 0.05:
            rows = ", ".join(f"({self._constant(INT)}, {self._constant(TEXT)})" for _ in range(3))
            names = [Column(f"{name}.n", INT), Column(f"{name}.s", TEXT)]
            return f"(select * from values {rows} as t(n, s)) as {name}", names
        if self.dice.random() < 0.1:
            return self._turned(name)
        table = self.dice.choice("aabbcde")
        return f"{table} {name}", _scope(table, name)

    def _turned(self, name: str) -> tuple[str, list[Column]]:
        """Return a relation whose columns became rows, or whose rows became columns; DuckDB is asked in other words."""
        inside = f"t{next(self.names)}"
        table = self.dice.choice("aabbcde")
        scope = _scope(table, inside)
        inner = f"(select {self._selected(scope, (INT, INT, INT), 0)} from {table} {inside}{self._where(scope, 0)})"
        form = self.dice.choice((self._pivot, self._unpivot, self._exploded, self._exploded_outer))
        own, batch, columns = form(inner)
        return f"(«{own}¦{batch}») as {name}", [Column(f"{name}.{column}", INT) for column in columns]

    def _pivot(self, inner: str) -> tuple[str, str, tuple[str, ...]]:
        word = self.dice.choice(("count(*)", "sum(c2)", "max(c2)", "count(c2)"))
        only = self.dice.choice(("true", "c2 > 1"))
        tests = {"1": "c1 = 1", "2": "c1 = 2", "null": "c1 is null"}
        columns = [f"v{at}" for at in range(len(tests))]
        asked, items = [], []
        for (value, test), column in zip(tests.items(), columns, strict=True):
            found = f"{word} filter (where {test} and {only})"
            asked.append(f"{value} as {column}")
            items.append(f"case when count(*) filter (where {test}) > 0 then {found} end as {column}")
        own = f"select * from {inner} pivot ({word} filter (where {only}) for c1 in ({', '.join(asked)}))"
        return own, f"select c0, {', '.join(items)} from {inner} i group by c0", ("c0", *columns)

    def _unpivot(self, inner: str) -> tuple[str, str, tuple[str, ...]]:
        nulls = self.dice.random() < 0.5
        own = (
            f"select c0, v, length(n) as n from {inner} unpivot {'include nulls ' * nulls}(v for n in (c1, c2 as cc2))"
        )
        rows = " union all ".join(
            f"select c0, {column} as v, {size} as n from {inner} i{'' if nulls else f' where {column} is not null'}"
            for column, size in (("c1", 2), ("c2", 3))
        )
        return own, rows, ("c0", "v", "n")

    def _exploded(self, inner: str) -> tuple[str, str, tuple[str, ...]]:
        call = self.dice.choice(("posexplode(array(c1, c2))", "posexplode_outer(array(c1, c2))"))
        own = f"select c0, pos, x from {inner} i lateral view {call} e as pos, x"
        if self.dice.random() < 0.4:
            own = f"select c0, stack(2, 0, c1, 1, c2) as (pos, x) from {inner} i"
        rows = " union all ".join(f"select c0, {at} as pos, c{at + 1} as x from {inner} i" for at in range(2))
        return own, rows, ("c0", "pos", "x")

    def _exploded_outer(self, inner: str) -> tuple[str, str, tuple[str, ...]]:
        own = f"select c0, x from {inner} i lateral view outer explode(filter(array(c1, c2), y -> y > 1)) e as x"
        some = (f"select c0, c{at} as x from {inner} i where c{at} > 1" for at in (1, 2))
        none = f"select c0, null as x from {inner} i where not coalesce(c1 > 1, false) and not coalesce(c2 > 1, false)"
        return own, " union all ".join((*some, none)), ("c0", "x")

    def _joined(self, text: str, scope: list[Column], deep: int) -> tuple[str, list[Column]]:
        other, more = self._relation(deep)
        if self.dice.random() < 0.12:
            other, more = self._joined(other, more, deep)
            other = f"({other})"
        pairs = [(one, two) for one in scope for two in more if _compared(one.kind, two.kind)]
        if not pairs:
            return text, scope
        how = self.dice.choice(("join", "left join", "right join", "full join", "left semi join", "left anti join"))
        one, two = self.dice.choice(pairs)
        on = f"{one.sql} = {two.sql}"
        if self.dice.random() < 0.2:
            first, second = self.dice.choice(pairs)
            on += f" and {first.sql} = {second.sql}"
        if self.dice.random() < 0.35:
            on += f" and {self._test([*scope, *more], 0)}"
        same = one.sql.split(".")[1] if one.sql.split(".")[1:] == two.sql.split(".")[1:] else ""
        twice = any(sum(column.sql.endswith(f".{same}") for column in side) > 1 for side in (scope, more))
        kept = [column for column in scope if column != one]
        if kept and same and not twice and one.kind == two.kind != MONEY and self.dice.random() < 0.2:
            others = [] if "semi" in how or "anti" in how else [column for column in more if column != two]
            return f"{text} {how} {other} using ({same})", [*kept, *others]
        kept = scope if "semi" in how or "anti" in how else [*scope, *more]
        return f"{text} {how} {other} on {on}", kept

    # ---- expressions ----

    def _selected(self, scope: list[Column], kinds: tuple[str, ...], deep: int) -> str:
        return ", ".join(f"{self._value(scope, kind, deep)} as c{at}" for at, kind in enumerate(kinds))

    def _where(self, scope: list[Column], deep: int) -> str:
        return f" where {self._test(scope, deep)}" if self.dice.random() < 0.5 else ""

    def _number(self) -> int:
        return self.dice.choice((0, 1, 1, 2, 3))

    def _constant(self, kind: str) -> str:
        return self.dice.choice(CONSTANTS[kind])

    def _column(self, scope: list[Column], kind: str) -> str:
        fitting = [column.sql for column in scope if column.kind == kind]
        return self.dice.choice(fitting) if fitting else self._constant(kind)

    def _value(self, scope: list[Column], kind: str, deep: int) -> str:
        column = self._column(scope, kind)
        draw = self.dice.random()
        if draw < 0.55:
            return column
        if draw < 0.65:
            return f"coalesce({column}, {self._column(scope, kind)})"
        if draw < 0.75:
            return f"case when {self._test(scope, 0)} then {column} else {self._column(scope, kind)} end"
        if deep and draw < 0.82:
            return self._scalar(scope, kind)
        if kind == TEXT:
            return self.dice.choice((f"upper({column})", f"concat({column}, 'q')"))
        if kind == TRUTH:
            return f"({self._test(scope, 0)})"
        if kind != INT:
            return f"nullif({column}, {self._constant(kind)})"
        return self.dice.choice((f"{column} + 1", f"{column} - {self._column(scope, INT)}", f"{column} * 2"))

    def _aggregate(self, scope: list[Column], kind: str) -> str:
        value = self._value(scope, kind, 0)
        if kind == TRUTH:
            return self.dice.choice((f"bool_or({value})", f"bool_and({value})", f"count({value}) > 1"))
        if kind == MONEY:
            return self.dice.choice((f"min({value})", f"max({value})", f"cast(sum({value}) as decimal(20,3))"))
        if kind == REAL and self.dice.random() < 0.3:
            return f"avg({self._column(scope, INT)})"
        if kind != INT:
            return self.dice.choice((f"min({value})", f"max({value})"))
        only = f" filter (where {self._test(scope, 0)})" if self.dice.random() < 0.2 else ""
        word = self.dice.choice(
            ("count(*)", "sum({0})", "min({0})", "max({0})", "count({0})", "count(distinct {0})", "sum(distinct {0})")
        )
        if word.startswith("count(") and self.dice.random() < 0.3:
            value = self._value(scope, self.dice.choice(KINDS), 0)
        found = f"cast({word.format(value)}{only} as bigint)"
        if not only and self.dice.random() < 0.15:
            some = f"cast(sum(case when {self._test(scope, 0)} then 1 else 0 end) as bigint)"
            found = self.dice.choice((f"coalesce({found}, 0)", f"{found} - count(*)", some))
        return found

    def _scalar(self, scope: list[Column], kind: str) -> str:
        """Return an aggregate over rows that an equality finds."""
        inner, more = self._relation(0)
        pairs = [(one, two) for one in scope for two in more if _compared(one.kind, two.kind)]
        if not pairs:
            return self._column(scope, kind)
        draw = self.dice.random()
        if draw < 0.2:
            return f"(select {self._aggregate(more, kind)} from {inner}{self._where(more, 0)})"
        one, two = self.dice.choice(pairs)
        also = f" and {self._test([*scope, *more], 0)}" if draw < 0.5 else ""
        return f"(select {self._aggregate(more, kind)} from {inner} where {one.sql} = {two.sql}{also})"

    def _test(self, scope: list[Column], deep: int) -> str:
        draw = self.dice.random()
        kind = self.dice.choice(KINDS)
        column = self._column(scope, kind)
        if draw < 0.15:
            word = self.dice.choice(("and", "or"))
            return f"({self._test(scope, deep)} {word} {self._test(scope, deep)})"
        if draw < 0.2:
            return f"not ({self._test(scope, deep)})"
        if draw < 0.35:
            return f"{column} is {self.dice.choice(('', 'not '))}null"
        if deep and draw < 0.6:
            return self._of_rows(scope)
        if draw < 0.7:
            return f"{column} {self.dice.choice(('=', '<', '<>', '>='))} {self._column(scope, kind)}"
        if draw < 0.75:
            return f"{column} {self.dice.choice(('', 'not '))}in ({self._constant(kind)}, {self._constant(kind)})"
        if draw < 0.8:
            return f"{column} between {self._constant(kind)} and {self._constant(kind)}"
        return f"{column} {self.dice.choice(('=', '<', '<>', '>=', '<=>'))} {self._constant(kind)}"

    def _of_rows(self, scope: list[Column]) -> str:
        """Return a test by the rows of another query."""
        inner, more = self._relation(1)
        pairs = [(one, two) for one in scope for two in more if _compared(one.kind, two.kind)]
        if not pairs:
            return f"{self._column(scope, INT)} >= 1"
        one, two = self.dice.choice(pairs)
        no = self.dice.choice(("", "", "not "))
        if self.dice.random() < 0.5:
            seen = self.dice.choice((more, [*scope, *more]))
            more_tests = f" and {self._test(seen, 0)}" if self.dice.random() < 0.5 else ""
            return f"{no}exists (select 1 from {inner} where {one.sql} = {two.sql}{more_tests})"
        where = f" where {self._test(more, 0)}" if self.dice.random() < 0.5 else ""
        if self.dice.random() < 0.2:
            first, second = self.dice.choice(pairs)
            return f"({one.sql}, {first.sql}) in (select {two.sql}, {second.sql} from {inner}{where})"
        return f"{one.sql} {no}in (select {two.sql} from {inner}{where})"


def _scope(table: str, name: str) -> list[Column]:
    return [Column(f"{name}.{each.name}", _kind(each.type)) for each in parse(SCHEMAS[table][0])]


def as_kept(text: str) -> str:
    """Return a query as an app keeps it."""
    return re.sub(r"«([^¦]*)¦[^»]*»", r"\1", text)


def as_batch(text: str) -> str:
    """Return a query as DuckDB answers it: windows are buckets of times, several where they overlap."""
    return sqlglot.transpile(re.sub(r"«[^¦]*¦([^»]*)»", r"\1", text), read="spark", write="duckdb")[0]


def _compared(one: str, other: str) -> bool:
    return one == other or {one, other} <= {INT, REAL, MONEY}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return INT
    if pa.types.is_decimal(kind):
        return MONEY
    return TIME if pa.types.is_timestamp(kind) else OF_TYPES[str(kind)]
