"""Session windows, after the exchange: chunks into the sessions that are open, merged where they touch.

State is one row a group and session, identified by its first row's time; multisets are kept by chunk, which lies within
one session for good, so that merging sessions touches none of them. Sessions that the watermark closed are removed
before rows of the epoch are merged: none of them is revived.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.base.names import quote
from headrace.kernels.counts import Counts
from headrace.kernels.groups import session_columns
from headrace.kernels.groups.aggregate import MergeRun, concat_present
from headrace.kernels.groups.chunks import chunked, islands
from headrace.kernels.groups.gaps import CHUNK, SessionSql
from headrace.kernels.groups.grouping import GROUPS
from headrace.kernels.groups.partial import partial_groups, partial_values
from headrace.kernels.op import StepResult
from headrace.kernels.sql import alike, by_position, with_nulls
from headrace.kernels.state.tables import COUNT


@dataclass(frozen=True)
class _Merged:
    """What an epoch's chunks make of the kept sessions.

    `old` and `new` are relations of the sessions that they change and of those that they form, `lost` one of the spans
    that no open session has. `changed` are the rows of the state; None: SQL has them.
    """

    old: str
    new: str
    lost: str
    changed: pa.Table | None


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
        if not self.state.rows or not self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {gone})")[0][0]:
            return None
        closing = f"(SELECT {self._kept('s')} FROM {groups} s WHERE {gone})"
        if self.grouping.multisets:
            self._create("closing", f"* FROM {closing}")
            closing = "closing"
        out = None
        if self.grouping.final:
            order = ", ".join(["_window_last", "_window", *(quote(name) for name, _, _ in self.grouping.keys)])
            results = self._rendered(f"SELECT * FROM {closing}", closing)
            out = self.duck.arrow(self._result_rows(f"(SELECT * FROM ({results}) ORDER BY {order})", 1))
        for number in range(len(self.grouping.multisets)):
            self._drop_values(f"values{number}")
        self.state.evict(GROUPS, gone)
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
        merged = self._by_columns(chunks[0], rows) or self._by_sql(chunks[0], rows)
        values, late = (chunks[1:], None) if rows is None else self._split_late(rows, chunks[1:], merged)
        if self.grouping.final:
            self._replace(merged, values)
            return None, late
        old, new = merged.old, merged.new
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE before AS {self._rendered(f'SELECT * FROM {old}', old)}")
        self._replace(merged, values)
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE after AS {self._rendered(f'SELECT * FROM {new}', new)}")
        return self._difference(), late

    def _chunked(self, doubtful: list[pa.Table]) -> str:
        """Return the rows that may be late with their chunks."""
        parts = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in doubtful)
        keys = [name for name, _, _ in self.grouping.keys]
        return chunked(self.duck, self._sql.session, f"({parts})", keys)

    def _by_columns(self, fresh: list[pa.Table], doubtful: str | None) -> _Merged | None:
        """Return what chunks and the kept sessions near them form, without SQL; None where that has to do it."""
        if not session_columns.covers(self.grouping):
            return None
        if doubtful is not None:
            fresh = [*fresh, self.duck.arrow(partial_groups(self.grouping, doubtful))]
        try:
            chunks = session_columns.chunks(self.grouping, fresh)
            kept = self._reachable_sessions(self.duck.register(chunks)) if self.state.rows else None
            found = session_columns.merged(
                self.grouping,
                chunks,
                None if kept is None else self.duck.arrow(kept),
                open_from=None if self.watermark is None else self._sql.open_from(self.watermark),
            )
        except pa.ArrowInvalid:  # a sum is wider than 64 bits
            return None
        if found is None:
            return None
        new, old = (f"(SELECT {self._kept('s')} FROM {self.duck.register(each)} s)" for each in (found.new, found.old))
        lost = "" if doubtful is None else self.duck.register(found.lost)
        return _Merged(old, new, lost, found.changed)

    def _by_sql(self, fresh: list[pa.Table], doubtful: str | None) -> _Merged:
        """Return what chunks and the kept sessions near them form, by SQL."""
        accumulators = [f"p{i}::{accumulator.type} AS p{i}" for i, accumulator in enumerate(self.grouping.accumulators)]
        columns = ", ".join([*self._keys, "_pane", "_time AS _last", COUNT, *accumulators, "NULL::BIGINT AS o_row"])
        sources = [f"SELECT {columns} FROM {self.duck.register(part)}" for part in fresh]
        if doubtful is not None:
            sources.append(f"SELECT {columns} FROM ({partial_groups(self.grouping, doubtful)})")
        self._create("chunks", f"* FROM ({' UNION ALL '.join(sources)})")
        spans = self.duck.arrow(f"SELECT * FROM chunks UNION ALL {self._reachable_sessions('chunks')}")
        self._create("spans", f"* FROM {islands(self.duck, self._sql.session, spans, self._keys)}")
        open_ = "true" if self.watermark is None else f"NOT {self._sql.closed('_last', self.watermark)}"
        self._create("islands", f"* FROM ({self._touched()}) WHERE {open_}")
        self._create("new_sessions", f"{self._kept('i')} FROM islands i")
        touched = f"spans s JOIN islands i ON {self._same('s', 'i')} AND s._first = i._pane"
        self._create("old_sessions", f"{self._kept('s')}, s.o_row FROM {touched} WHERE s.o_row IS NOT NULL")
        lost = f"(SELECT s.* FROM spans s ANTI JOIN islands i ON {self._same('s', 'i')} AND s._first = i._pane)"
        return _Merged("(SELECT * EXCLUDE (o_row) FROM old_sessions)", "new_sessions", lost, None)

    def _touched(self) -> str:
        """Return SQL for the sessions that chunks of this epoch are in: what `spans` make together."""
        keys = [*self._keys, "_first AS _pane"]
        folds = [
            f"({accumulator.finish.format(f=f'{accumulator.fold}(p{i})')})::{accumulator.type} AS p{i}"
            for i, accumulator in enumerate(self.grouping.accumulators)
        ]
        merged = [*keys, "max(_last) AS _last", f"sum({COUNT})::BIGINT AS {COUNT}", *folds]
        return f"SELECT {', '.join(merged)} FROM spans {by_position(keys)} HAVING bool_or(o_row IS NULL)"

    def _reachable_sessions(self, chunks: str) -> str:
        """Return SQL for the kept sessions that a chunk of their group may reach."""
        gap = self._sql.session.gap
        reach = f"SELECT {', '.join([*self._keys, 'min(_pane) AS _from', 'max(_last) AS _to'])} FROM {chunks}"
        nulls = with_nulls([self.duck.arrow(f"SELECT {', '.join(self._keys)} FROM {chunks}")]) if self._keys else ()
        same = alike("s", "c", self._keys, nulls=nulls)
        reachable = f"{same} AND s._pane <= c._to + {gap} AND s._last >= c._from - {gap}"
        columns = ", ".join(f"s.{name}" for name in [*self._keys, "_pane", "_last", COUNT, *self._accumulators])
        by = by_position(self._keys)
        return (
            f"SELECT {columns}, s.rowid AS o_row FROM {self.state.name(GROUPS)} s JOIN ({reach} {by}) c ON {reachable}"
        )

    def _split_late(
        self, doubtful: str, values: list[list[pa.Table]], merged: _Merged
    ) -> tuple[list[list[pa.Table]], pa.Table | None]:
        """Return the multisets' values with those of rows that an open session takes, and the other, late rows."""
        lost = merged.lost
        own = [f"r.{sql} IS NOT DISTINCT FROM l.k{i}" for i, (_, sql, _) in enumerate(self.grouping.keys)]
        of = " AND ".join([*own, f"r.{CHUNK} = l._pane"])
        late = self.duck.arrow(f"SELECT r.* EXCLUDE ({CHUNK}) FROM {doubtful} r SEMI JOIN {lost} l ON {of}")
        taken = f"(SELECT r.* FROM {doubtful} r ANTI JOIN {lost} l ON {of})"
        more = [self.duck.arrow(partial_values(self.grouping, n, taken)) for n in range(len(values))]
        values = [[*parts, added] if added.num_rows else parts for parts, added in zip(values, more, strict=True)]
        return values, late if late.num_rows else None

    def _replace(self, merged: _Merged, values: list[list[pa.Table]]) -> None:
        """Put new sessions in the place of old ones, and add to the multisets."""
        changed = self.duck.arrow(self._changed()) if merged.changed is None else merged.changed
        self.state.replace(GROUPS, changed, at="o_row")
        folded = [self._folded(number, *self._together(number, parts)) for number, parts in enumerate(values, start=1)]
        self._nulls = [frozenset(), *(with_nulls(parts) for parts in values)]
        self._update_values(["", *folded])

    def _changed(self) -> str:
        """Return SQL for the rows of the state that put `new_sessions` in the place of `old_sessions`."""
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
        return f"{new} UNION ALL {old}"

    def _create(self, table: str, select: str) -> None:
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {select}")
