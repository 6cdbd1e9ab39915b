"""Results that are computed from one kept row alone: of a changed group the old one withdrawn, the new one inserted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.base.schema import TIMESTAMP_NTZ
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from headrace.kernels.groups.grouping import Grouping

INSERTED, WITHDRAWN = "inserted", "withdrawn"
BARE = re.compile(r'"_a(\d+)"')
"""A result that is no more than a call."""
_PIECE = re.compile(r"\b(?:p(\d+)|(_n))\b")


@dataclass(frozen=True)
class SingleRowSql:
    """SQL for the results of changed groups.

    The input has a row for each group: keys `k0…`, `_pane`, count `_n`, accumulators `p0…`, and their values before,
    `o_n` and `o0…`. The output adds the results `r0…` of now, `q0…` of before, and whether the one is to be `inserted`
    and the other `withdrawn`; the old accumulators are left out.
    """

    grouping: Grouping

    def of(self, changed: str) -> str:
        """Return the SQL over relation `changed`."""
        g = self.grouping
        differs = " OR ".join(f"r{i} IS DISTINCT FROM q{i}" for i in range(len(g.results))) or "false"
        inserted = f"{COUNT} > 0 AND (o_n IS NULL OR {differs}) AS {INSERTED}"
        withdrawn = f"o_n > 0 AND ({COUNT} = 0 OR {differs}) AS {WITHDRAWN}"
        results = self._bare(changed) if self._all_bare() else self._computed(changed)
        return f"SELECT *, {inserted}, {withdrawn} FROM ({results})"

    def _all_bare(self) -> bool:
        return all(BARE.fullmatch(sql) for _, sql, _ in self.grouping.results)

    def _inside(self) -> list[str]:
        g = self.grouping
        keys = [*(f"k{i}" for i in range(len(g.keys))), *(["_pane"] if g.windowed else [])]
        return [*keys, COUNT, *(f"p{i}" for i in range(len(g.kept))), "o_n", "o_row", "_time"]

    def _call(self, i: int, *, old: bool) -> str:
        """Return a call over the new or the old accumulators, null without rows."""
        sql, count = self.grouping.calls[i], COUNT
        if old:
            sql, count = _PIECE.sub(_old_name, sql), "o_n"
        return sql if sql == count or re.fullmatch(r"[po]\d+", sql) else f"CASE WHEN {count} > 0 THEN {sql} END"

    def _bare(self, changed: str) -> str:
        """Return the results where each is a bare call."""
        numbers = [int(BARE.fullmatch(sql)[1]) for _, sql, _ in self.grouping.results]  # type: ignore[index]
        new = [f"{self._call(n, old=False)} AS r{i}" for i, n in enumerate(numbers)]
        old = [f"{self._call(n, old=True)} AS q{i}" for i, n in enumerate(numbers)]
        return f"SELECT {', '.join([*self._inside(), *new, *old])} FROM ({changed})"

    def _computed(self, changed: str) -> str:
        """Return results that are expressions over calls `_a0…` and keys by their names, which may be any text."""
        g, hidden = self.grouping, self._hidden()
        keys = [f"k{i} AS {quote(name)}" for i, (name, _, _) in enumerate(g.keys)]
        now = [f"{self._call(i, old=False)} AS _a{i}" for i in range(len(g.calls))]
        before = [f"{self._call(i, old=True)} AS {hidden}b{i}" for i in range(len(g.calls))]
        aside = [f"{name} AS {hidden}{name}" for name in self._inside()]
        calls = f"SELECT {', '.join([*aside, *keys, *now, *before])} FROM ({changed})"
        new = [
            f"CASE WHEN {hidden}{COUNT} > 0 THEN {sql} END AS {hidden}r{i}" for i, (_, sql, _) in enumerate(g.results)
        ]
        old = [f"CASE WHEN {hidden}o_n > 0 THEN {sql} END AS q{i}" for i, (_, sql, _) in enumerate(g.results)]
        both = f"SELECT {', '.join(['*', *new])} FROM ({calls})"
        renamed = [f"{hidden}b{i} AS _a{i}" for i in range(len(g.calls))]
        hide = f" EXCLUDE ({', '.join(f'_a{i}' for i in range(len(g.calls)))})" if g.calls else ""
        turned = f"SELECT {', '.join([f'*{hide}', *renamed])} FROM ({both})"
        back = [f"{hidden}{name} AS {name}" for name in self._inside()]
        back += [f"{hidden}r{i} AS r{i}" for i in range(len(g.results))]
        return f"SELECT {', '.join([*back, *old])} FROM ({turned})"

    def _hidden(self) -> str:
        """Return a prefix that no key's name begins with."""
        prefix = "h_"
        while any(name.lower().startswith(prefix) for name, _, _ in self.grouping.keys):
            prefix = "h" + prefix
        return prefix


def change_pairs(grouping: Grouping, rows: pa.Table) -> pa.Table:
    """Return the delta of the step: what is withdrawn, then what is inserted, under the step's own names."""
    return pa.concat_tables(
        [
            _result(grouping, rows, WITHDRAWN, prefix="q", weight=-1),
            _result(grouping, rows, INSERTED, prefix="r", weight=1),
        ]
    )


def _result(grouping: Grouping, rows: pa.Table, which: str, *, prefix: str, weight: int) -> pa.Table:
    mask = rows.column(which)
    if not pc.all(mask, min_count=0).as_py() or mask.null_count:
        rows = rows.filter(mask)
    columns = {name: rows.column(f"k{i}") for i, (name, _, _) in enumerate(grouping.keys)}
    time = rows.column("_time")
    if grouping.windowed:
        start, end, time = _bounds(grouping, rows.column("_pane"))
        columns |= {"window_start": start.cast(TIMESTAMP_NTZ), "window_end": end.cast(TIMESTAMP_NTZ)}
    columns |= {name: rows.column(f"{prefix}{i}") for i, (name, _, _) in enumerate(grouping.results)}
    weights = pa.repeat(pa.scalar(weight, pa.int32()), rows.num_rows)
    return pa.table([*columns.values(), weights, time], names=[*columns, "_weight", "_time"])


def _bounds(grouping: Grouping, pane: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.ChunkedArray]:
    """Return a window's start, its end, and the last moment inside; sliding ones are identified by their ends."""
    if grouping.sliding is not None:
        return pc.subtract(pane, grouping.sliding.size), pane, pane
    assert grouping.panes is not None  # noqa: S101 -- sessions are no single rows
    end = pc.add(pane, grouping.panes.size)
    return pane, end, pc.subtract(end, 1)


def _old_name(found: re.Match[str]) -> str:
    return f"o{found[1]}" if found[1] is not None else "o_n"
