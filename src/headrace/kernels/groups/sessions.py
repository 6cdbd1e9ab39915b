"""Session windows, after the exchange: chunks into the sessions that are open, merged where they touch.

State is one row a group and session, identified by its first row's time; multisets are kept by chunk, which lies within
one session for good, so that merging sessions touches none of them. Sessions that the watermark closed are removed
before rows of the epoch are merged: none of them is revived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.kernels.counts import Counts
from headrace.kernels.groups import cells
from headrace.kernels.groups.aggregate import MergeRun, concat_present
from headrace.kernels.groups.chunks import chunked, islands
from headrace.kernels.groups.gaps import CHUNK, SessionSql
from headrace.kernels.groups.grouping import GROUPS
from headrace.kernels.groups.partial import partial_groups, partial_values
from headrace.kernels.op import StepResult
from headrace.kernels.sql import alike, by_position, with_nulls
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    import pyarrow as pa


class SessionMergeRun(MergeRun):
    """One epoch of one aggregate over sessions in one shard."""

    def run(self, partials: list[list[pa.Table]]) -> StepResult:
        """Close what the watermark closed, then add chunks, and the rows that are late unless a session takes them."""
        *chunks, doubtful = partials
        outputs, late = [], None
        if self.watermark is not None and self.watermark != self.previous:
            outputs.append(self._close(self.watermark))
        if chunks[0] or doubtful:
            delta, late = self._merge(chunks, doubtful)
            outputs.append(delta)
        delta = concat_present(outputs)
        return StepResult(
            delta=[] if delta is None else [delta],
            late=[] if late is None else [late],
            counts=Counts(late=late.num_rows if late else 0),
        )

    def _current(self, time: int) -> pa.Table:
        del time
        self._create("open_sessions", f"{self._kept('s')} FROM {self.state.name(GROUPS)} s")
        results = self._rendered("SELECT * FROM open_sessions", "open_sessions")
        return self.duck.arrow(self._result_rows(f"({results})", 1))

    @property
    def _sql(self) -> SessionSql:
        assert self.grouping.session is not None  # noqa: S101 -- this class is for sessions
        return SessionSql(self.grouping.session)

    @property
    def _keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.grouping.keys))]

    @property
    def _accumulators(self) -> list[str]:
        return [f"p{i}" for i in range(len(self.grouping.accumulators))]

    @property
    def _window(self) -> list[str]:
        """A session's first and last row."""
        return ["_window", "_window_last"]

    def _bounds(self) -> tuple[str, str]:
        return "_window", self._sql.end("_window_last")

    def _in_window(self) -> str:
        same = self._same("w", "s")
        return f"{same} AND s._pane >= w._window AND s._pane <= w._window_last"

    def _same(self, left: str, right: str) -> str:
        """Return the condition that two rows are of one group."""
        return alike(left, right, self._keys)

    # -- sessions that close

    def _close(self, watermark: int) -> pa.Table | None:
        """Return the final results of the sessions that closed since the last epoch, and drop them."""
        groups, gone = self.state.name(GROUPS), self._sql.closed("_last", watermark)
        if not self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {gone})")[0][0]:
            return None
        self._create("closing", f"{self._kept('s')}, s.rowid AS o_row FROM {groups} s WHERE {gone}")
        out = None
        if self.grouping.final:
            order = ", ".join(["_window_last", "_window", *(quote(name) for name, _, _ in self.grouping.keys)])
            results = self._rendered("SELECT * EXCLUDE (o_row) FROM closing", "closing")
            out = self.duck.arrow(self._result_rows(f"(SELECT * FROM ({results}) ORDER BY {order})", 1))
        for number in range(len(self.grouping.multisets)):
            self._drop_values(f"values{number}")
        self.state.replace(GROUPS, self.duck.arrow(f"SELECT {self._nothing('closing')} FROM closing"), at="o_row")
        return out

    def _drop_values(self, table: str) -> None:
        keys = ", ".join(f"s.{name}" for name, _ in self.state.tables[table].keys)
        kept = f"{self.state.name(table)} s JOIN closing w ON {self._in_window()}"
        self.state.replace(
            table, self.duck.arrow(f"SELECT {keys}, 0::BIGINT AS {COUNT}, s.rowid AS o_row FROM {kept}"), at="o_row"
        )

    def _nothing(self, alias: str) -> str:
        """Return the columns that remove a kept session."""
        values = [f"NULL::{kind} AS {name}" for name, kind in self.state.tables[GROUPS].values]
        keys = [f"{alias}.{key}" for key in self._keys]
        return ", ".join([*keys, f"{alias}._window AS _pane", f"0::BIGINT AS {COUNT}", *values, f"{alias}.o_row"])

    def _kept(self, alias: str) -> str:
        """Return the columns of a kept session under the names that results are computed from."""
        named = ["_pane AS _window", "_last AS _window_last", COUNT]
        accumulators = [  # rows that went through Arrow have whole numbers of 128 bits as decimals
            f"{alias}.p{i}::{accumulator.type} AS p{i}" for i, accumulator in enumerate(self.grouping.accumulators)
        ]
        own = [f"{alias}.{name}" for name in (*self._keys, *named)]
        return ", ".join(["0::BIGINT AS _time", *own, *accumulators])

    # -- sessions that grow and merge

    def _merge(self, chunks: list[list[pa.Table]], doubtful: list[pa.Table]) -> tuple[pa.Table | None, pa.Table | None]:
        """Add the epoch's chunks to the state; return what changed, unless results are final, and the late rows."""
        rows = self._chunked(doubtful) if doubtful else None
        self._merge_spans(chunks[0], rows)
        values, late = (chunks[1:], None) if rows is None else self._split_late(rows, chunks[1:])
        self._create("new_sessions", f"{self._kept('i')} FROM islands i")
        touched = f"spans s JOIN islands i ON {self._same('s', 'i')} AND s._first = i._pane"
        self._create("old_sessions", f"{self._kept('s')}, s.o_row FROM {touched} WHERE s.o_row IS NOT NULL")
        if self.grouping.final:
            self._replace(values)
            return None, late
        before = self._rendered("SELECT * EXCLUDE (o_row) FROM old_sessions", "old_sessions")
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE before AS {before}")
        self._replace(values)
        self.duck.run(
            f"CREATE OR REPLACE TEMP TABLE after AS {self._rendered('SELECT * FROM new_sessions', 'new_sessions')}"
        )
        return self._difference(), late

    def _chunked(self, doubtful: list[pa.Table]) -> str:
        """Return the rows that may be late with their chunks."""
        parts = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in doubtful)
        keys = [name for name, _, _ in self.grouping.keys]
        return chunked(self.duck, self._sql.session, f"({parts})", keys)

    def _merge_spans(self, fresh: list[pa.Table], doubtful: str | None) -> None:
        """Create `spans`, chunks and the kept sessions near them, and `islands`, the open sessions that they form."""
        accumulators = [f"p{i}::{accumulator.type} AS p{i}" for i, accumulator in enumerate(self.grouping.accumulators)]
        columns = ", ".join([*self._keys, "_pane", "_time AS _last", COUNT, *accumulators, "NULL::BIGINT AS o_row"])
        sources = [f"SELECT {columns} FROM {self.duck.register(part)}" for part in fresh]
        if doubtful is not None:
            sources.append(f"SELECT {columns} FROM ({partial_groups(self.grouping, doubtful)})")
        self._create("chunks", f"* FROM ({' UNION ALL '.join(sources)})")
        both = f"SELECT * FROM chunks UNION ALL {self._reachable_sessions()}"
        spans = self.duck.arrow(both)
        relation, runs = islands(self.duck, self._sql.session, spans, self._keys)
        self._create("spans", f"* FROM {relation}")
        touched = self._touched(None if runs is None else cells.island_groups(self.grouping, spans, runs))
        open_ = "true" if self.watermark is None else f"NOT {self._sql.closed('_last', self.watermark)}"
        self._create("islands", f"* FROM ({touched}) WHERE {open_}")

    def _touched(self, islands: pa.Table | None) -> str:
        """Return SQL for the sessions that chunks of this epoch are in: those given, or what `spans` make together."""
        if islands is not None:
            kept = ", ".join(f"{name}::{kind} AS {name}" for name, kind in self.state.tables[GROUPS].kinds)
            return f"SELECT {kept} FROM {self.duck.register(islands)}"
        keys = [*self._keys, "_first AS _pane"]
        folds = [
            f"({accumulator.finish.format(f=f'{accumulator.fold}(p{i})')})::{accumulator.type} AS p{i}"
            for i, accumulator in enumerate(self.grouping.accumulators)
        ]
        merged = [*keys, "max(_last) AS _last", f"sum({COUNT})::BIGINT AS {COUNT}", *folds]
        return f"SELECT {', '.join(merged)} FROM spans {by_position(keys)} HAVING bool_or(o_row IS NULL)"

    def _reachable_sessions(self) -> str:
        """Return SQL for the kept sessions that a chunk of their group may reach."""
        gap = self._sql.session.gap
        reach = f"SELECT {', '.join([*self._keys, 'min(_pane) AS _from', 'max(_last) AS _to'])} FROM chunks"
        nulls = with_nulls([self.duck.arrow(f"SELECT {', '.join(self._keys)} FROM chunks")]) if self._keys else ()
        same = alike("s", "c", self._keys, nulls=nulls)
        reachable = f"{same} AND s._pane <= c._to + {gap} AND s._last >= c._from - {gap}"
        columns = ", ".join(f"s.{name}" for name in [*self._keys, "_pane", "_last", COUNT, *self._accumulators])
        by = by_position(self._keys)
        return (
            f"SELECT {columns}, s.rowid AS o_row FROM {self.state.name(GROUPS)} s JOIN ({reach} {by}) c ON {reachable}"
        )

    def _split_late(self, doubtful: str, values: list[list[pa.Table]]) -> tuple[list[list[pa.Table]], pa.Table | None]:
        """Return the multisets' values with those of rows that an open session takes, and the other, late rows."""
        lost = f"SELECT s.* FROM spans s ANTI JOIN islands i ON {self._same('s', 'i')} AND s._first = i._pane"
        own = [f"r.{sql} IS NOT DISTINCT FROM l.k{i}" for i, (_, sql, _) in enumerate(self.grouping.keys)]
        of = " AND ".join([*own, f"r.{CHUNK} = l._pane"])
        late = self.duck.arrow(f"SELECT r.* EXCLUDE ({CHUNK}) FROM {doubtful} r SEMI JOIN ({lost}) l ON {of}")
        taken = f"(SELECT r.* FROM {doubtful} r ANTI JOIN ({lost}) l ON {of})"
        more = [self.duck.arrow(partial_values(self.grouping, n, taken)) for n in range(len(values))]
        values = [[*parts, added] if added.num_rows else parts for parts, added in zip(values, more, strict=True)]
        return values, late if late.num_rows else None

    def _replace(self, values: list[list[pa.Table]]) -> None:
        """Put `new_sessions` in the place of `old_sessions`, and add to the multisets."""
        same = f"{self._same('n', 'o')} AND n._window = o._window"
        columns = [
            *(f"n.{key}" for key in self._keys),
            "n._window AS _pane",
            f"n.{COUNT}",
            "n._window_last AS _last",
            *(f"n.{p}" for p in self._accumulators),
        ]
        new = f"SELECT {', '.join([*columns, 'o.o_row'])} FROM new_sessions n LEFT JOIN old_sessions o ON {same}"
        old = f"SELECT {self._nothing('o')} FROM old_sessions o ANTI JOIN new_sessions n ON {same}"
        self.state.replace(GROUPS, self.duck.arrow(f"{new} UNION ALL {old}"), at="o_row")
        folded = [self._folded(number + 1, parts) for number, parts in enumerate(values)]
        self._nulls = [frozenset(), *(with_nulls(parts) for parts in values)]
        self._update_values(["", *folded])

    def _create(self, table: str, select: str) -> None:
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {select}")
