"""What is computed of the rows before a row, as plain values, and as SQL over the rows of an epoch and those kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.base.names import quote
from headrace.kernels.aggregates.exact import layered

if TYPE_CHECKING:
    from headrace.kernels.aggregates.aggregate_spec import Accumulator, Layers
    from headrace.kernels.state.tables import Column

ROWS, LAST, PAST = "rows", "last", "past"
_BARE = re.compile(r'"_a(\d+)"')
_HIDDEN = "_headrace_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The rows that count for a row: of its key, in the order of time.

    "all": all up to it. "rows": from `first` rows before it to `last` rows before it. "range": those of the `first`
    microseconds before it, with all of its own time.
    """

    kind: Literal["all", "rows", "range"]
    first: int = 0
    last: int = 0

    @property
    def sql(self) -> str:
        """The frame in SQL."""
        if self.kind == "all":
            return "ROWS UNBOUNDED PRECEDING"
        end = "CURRENT ROW" if self.last == 0 else f"{self.last} PRECEDING"
        return f"{self.kind.upper()} BETWEEN {self.first} PRECEDING AND {end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunctions:
    """Columns of rows, keys by number, types of the arguments `x0…`, and what is computed.

    `placed[j]` is SQL for `l{j}` with `{by}` for the order of the key's rows; `lagged` are the arguments that it reads
    of rows before. `calls[i]` is SQL for `_a{i}` over `p0…` and `l0…`; `results` (name, SQL, type) are over these and
    the columns' own names. `behind`: how many of the last rows of a key are kept; `ahead`: how many rows a row looks
    ahead.
    """

    columns: tuple[Column, ...]
    key: tuple[int, ...]
    arguments: tuple[str, ...]
    frame: Frame
    accumulators: tuple[Accumulator, ...]
    layers: Layers
    exact: bool
    placed: tuple[str, ...]
    lagged: tuple[int, ...]
    calls: tuple[str, ...]
    results: tuple[tuple[str, str, str], ...]
    behind: int
    ahead: int

    @property
    def keys(self) -> list[str]:
        """The names inside of the keys."""
        return [f"c{i}" for i in self.key]

    @property
    def inside(self) -> list[str]:
        """The names inside of the columns, the arguments and the time."""
        columns = [f"c{i}" for i in range(len(self.columns))]
        return [*columns, *(f"x{i}" for i in range(len(self.arguments))), "_time"]

    @property
    def partition(self) -> str:
        """PARTITION BY the keys."""
        return f"PARTITION BY {', '.join(self.keys)} " if self.key else ""

    def numbered(self, rows: str) -> str:
        """Return SQL for rows with an `_id`, and the `_place` of each among those of its key.

        Rows of one time are in the order of the whole row, ascending, nulls first; equal rows in that of `_prior`.
        """
        ties = [f"c{i} ASC NULLS FIRST" for i in range(len(self.columns))]
        order = ", ".join(["_time", *ties, "_prior ASC NULLS LAST"])
        place = f"row_number() OVER ({self.partition}ORDER BY {order})"
        return f"SELECT *, row_number() OVER () AS _id, {place} AS _place FROM {rows}"

    def added(self, rows: str) -> str:
        """Return SQL for what each row of a table adds, by its `_id`."""
        adds = [f"{kept.partial} AS q{i}" for i, kept in enumerate(self.accumulators)]
        return f"SELECT {', '.join(['_id', *adds])} FROM {layered(rows, self.layers)} GROUP BY _id"

    def framed(self, rows: str, past: str) -> str:
        """Return SQL for `p0…` of rows, by `_id`: what the rows of their frames add, among relations `rows` and `past`.

        Both have the keys, `q0…`, and what they are in order by.
        """
        order = "_time" if self.frame.kind == "range" else "_nr"
        frame = f"WINDOW f AS ({self.partition}ORDER BY {order} {self.frame.sql})"
        adds = [f"q{i}" for i in range(len(self.accumulators))]
        columns = ", ".join([*self.keys, order, *adds])
        union = f"SELECT _id, {columns} FROM {rows} UNION ALL SELECT NULL, {columns} FROM {past}"
        folds = [f"{self._folded(kept, i)} AS p{i}" for i, kept in enumerate(self.accumulators)]
        return f"SELECT * FROM (SELECT {', '.join(['_id', *folds])} FROM ({union}) {frame}) WHERE _id IS NOT NULL"

    @staticmethod
    def _folded(kept: Accumulator, number: int) -> str:
        column = f"q{number}"
        if kept.fold == "sum":  # a frame may have no row
            return kept.finish.format(f=f"coalesce(sum({column}) OVER f, 0)")
        present = f" FILTER (WHERE {column} IS NOT NULL)" if kept.fold == "list" else ""
        return kept.finish.format(f=f"{kept.fold}({column}){present} OVER f")

    def located(self, rows: str, last: str) -> str:
        """Return SQL for `l0…` of rows, by `_id`: values of other rows, among relations `rows` and `last`."""
        by = f"({self.partition}ORDER BY _nr)"
        every = [f"x{i}" for i in range(len(self.arguments))]
        mine = ", ".join(["_id", *self.keys, "_nr", *every])
        theirs = [f"x{i}" if i in self.lagged else f"NULL AS x{i}" for i in range(len(self.arguments))]
        union = (
            f"SELECT {mine} FROM {rows} UNION ALL SELECT NULL, {', '.join([*self.keys, '_nr', *theirs])} FROM {last}"
        )
        values = [f"{sql.format(by=by)} AS l{j}" for j, sql in enumerate(self.placed)]
        return f"SELECT * FROM (SELECT {', '.join(['_id', *values])} FROM ({union})) WHERE _id IS NOT NULL"

    def rendered(self, rows: str, names: list[str]) -> str:
        """Return SQL for columns `names` of rows, and the results `r0…`, from `p0…` and `l0…`."""
        calls = [f"{call} AS _a{i}" for i, call in enumerate(self.calls)]
        called = f"SELECT {', '.join(['*', *calls])} FROM ({rows})"
        bare = [_BARE.fullmatch(sql) for _, sql, _ in self.results]
        if all(bare):
            results = [f"_a{found[1]} AS r{i}" for i, found in enumerate(bare) if found is not None]
            return f"SELECT {', '.join([*names, *results])} FROM ({called})"
        aside = [f"{name} AS {_HIDDEN}{name}" for name in names]
        own = [f"c{i} AS {quote(name)}" for i, (name, _) in enumerate(self.columns)]
        named = f"SELECT {', '.join([*aside, *own, *(f'_a{i}' for i in range(len(calls)))])} FROM ({called})"
        results = [f"{sql} AS r{i}" for i, (_, sql, _) in enumerate(self.results)]
        back = [f"{_HIDDEN}{name} AS {name}" for name in names]
        return f"SELECT {', '.join([*back, *results])} FROM ({named})"
