"""Rows of a stream, each with the version of a table that was valid at a time of the row's; final when it comes out.

A version is a record of the table: valid from the record's time until the next version of its key, of several of one
time the later arrival's. A delete is a version too: from then on there is no row. State is

`versions`   by key and time, with the time of the next (`_until`) and whether the row is gone from then on;
`waiting`    the stream's rows whose result may still change, which age by the time that they look up.

A row comes out when the watermark has passed its time `_at` by more than `grace`: where it is known, the one that the
epoch's own input reaches, so that most rows need not be stored. The epoch's own changes of the table count. One that
arrives more than `grace` behind the watermark is answered at once where the versions of its time are
still kept; else it is late, and a left join gives it with nulls.

A version is dropped when the next one is valid from `horizon` on, which is `grace` and `history` behind the watermark:
no row may look it up any more. A row whose time is before the horizon is matched with what is still kept, which is
right or nothing: a version that arrives late and would be dropped at once is not kept at all, so that it matches for no
other. A key that is gone is forgotten at the horizon too. The trap: an older version of it that arrives still later,
against the promise of the watermark, is taken for a new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.firsts import distinct
from headrace.kernels.joins.lookup_join import ALWAYS, NEVER, no_nulls
from headrace.kernels.joins.version_search import latest
from headrace.kernels.late import split_late
from headrace.kernels.op import StatefulOp, StepResult
from headrace.kernels.order import ORDER, NumberArrivals, in_order, numbered
from headrace.kernels.sql import alike, with_nulls
from headrace.kernels.state.tables import COUNT, TableSpec
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.op import Context, Operator

    Flags = np.ndarray[Any, np.dtype[np.bool_]]

VERSIONS, WAITING = "versions", "waiting"
_AT = "_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOfJoin(StatefulOp):
    """Rows of a stream, each with the version of a table's row that was valid at `at`, known `grace` later.

    On the right side arrive the table's records: upserts (`_weight` 1) and deletes (-1) with `_order`; `identity` are
    the columns of the table's key. Versions are kept `grace` and `history` behind the watermark. Late are the rows more
    than `grace` behind the watermark whose time is older than that, as rows of the join. All in microseconds.
    """

    join: JoinSpec
    at: str
    identity: tuple[str, ...]
    grace: int
    history: int

    @property
    def shared(self) -> tuple[str, ...]:
        """The columns of the table that equal those of the stream where rows match."""
        return tuple(theirs for _, theirs in self.join.on)

    def tables(self) -> tuple[TableSpec, TableSpec]:
        """Return the versions, and the rows that wait."""
        others = tuple(column for column in self.join.right if column[0] not in self.identity)
        keys = tuple(column for column in self.join.right if column[0] in self.identity)
        return (
            TableSpec(
                name=VERSIONS,
                keys=(*keys, ("_from", "BIGINT")),
                values=(*others, ("_until", "BIGINT"), ("_gone", "BOOLEAN")),
                by=tuple(dict.fromkeys((self.identity, self.shared))),
            ),
            TableSpec(name=WAITING, keys=(), values=(*self.join.left, ("_time", "BIGINT")), ages=self.at),
        )

    @property
    def emits_on_watermark(self) -> bool:
        """Rows wait until their result is final."""
        return True

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator | None:
        """Number the table's records as they arrive."""
        del late
        return None if side == 0 else NumberArrivals(step=self.step, inputs=(rows,), output=output)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Take in versions, match the rows whose time has come, keep the others, and drop what none may look up."""
        left, right = (delta.tables for delta in inputs)
        return AsOfJoinRun(self, context).result_of(left, right)


class AsOfJoinRun:
    """One epoch of one join in one shard."""

    def __init__(self, op: AsOfJoin, context: Context) -> None:
        self.duck = context.duck
        self.op = op
        self.join = op.join
        self.state = context.keyed
        self.watermark = context.watermark
        self.watermark_moved = context.watermark_moved
        self.final = None if context.final is None else context.final - op.grace
        """The time before which results are final."""
        self.horizon = None if context.previous is None else context.previous - op.grace - op.history
        """The time before which versions have been dropped."""
        self.result = StepResult()

    def result_of(self, left: list[pa.Table], right: list[pa.Table]) -> StepResult:
        """Take in versions, match the rows whose time has come, keep the others, and drop what none may look up."""
        parts = [part for part in (p.filter(no_nulls(p, self.op.shared)) for p in right) if part.num_rows]
        if parts:
            self._update_versions(parts)
        arrived = self._answerable(left)
        due = None if arrived is None else self._due(arrived)
        ready = self._ready(arrived, due)
        delta = self._matched(pa.concat_tables(ready)) if ready else []
        self.result.delta = [*(self.result.late if self.join.how == "left" else []), *delta]
        if self.final is not None:
            self.state.expire(WAITING, self.final)
        if self.watermark_moved is not None:
            self._forget(self.watermark_moved)
        if arrived is not None:
            self.state.append(WAITING, arrived.filter(pc.invert(due)))
        self.state.wait_since(self.state.minimum(WAITING, "_time"))
        return self.result

    # ---- the table's versions ----

    @property
    def _others(self) -> list[str]:
        return [name for name, _ in self.join.right if name not in self.op.identity]

    def _update_versions(self, parts: list[pa.Table]) -> None:
        """Put records into the versions: each at its time, until the next one."""
        nulls = with_nulls(parts)
        fresh = self.duck.arrow(self._fresh(self._dated(parts, nulls), once=self._once(parts, nulls)))
        new, key = self.duck.register(fresh), ", ".join(self.op.identity)
        names = [*self.op.identity, "_from", *self._others, "_gone"]
        first = f"SELECT {key}, min(_from) AS first FROM {new} GROUP BY {key}"
        later = self.duck.arrow(
            f"SELECT {_of('s', names)}, s._until AS o_until, s.rowid AS o_row "
            f"FROM {self.state.lookup(VERSIONS, self.op.identity, new)} s JOIN ({first}) f "
            f"ON {alike('s', 'f', self.op.identity, nulls=nulls)} AND s._until > f.first"
        )
        kept, same = self.duck.register(later), alike("n", "c", [*self.op.identity, "_from"], nulls=nulls)
        either = (
            f"SELECT {', '.join(names)}, o_until, o_row, false AS is_new FROM {kept} n "
            f"ANTI JOIN {new} c ON {same} UNION ALL SELECT {_of('c', names)}, NULL, n.o_row, true "
            f"FROM {new} c LEFT JOIN {kept} n ON {same}"
        )
        until = f"coalesce(lead(_from) OVER (PARTITION BY {key} ORDER BY _from), {NEVER}) AS _until"
        changed = "is_new OR _until <> o_until"
        versions = self.duck.arrow(
            f"SELECT *, {self._count()} AS {COUNT} FROM (SELECT *, {until} FROM ({either})) WHERE {changed}"
        )
        versions = versions.filter(pc.or_(pc.greater(versions.column(COUNT), 0), pc.is_valid(versions.column("o_row"))))
        self.state.replace(VERSIONS, versions.select([*self.state.tables[VERSIONS].columns, "o_row"]), at="o_row")

    def _count(self) -> str:
        """Return SQL that is 0 for a version that arrived so late that it is over already."""
        return "1::BIGINT" if self.horizon is None else f"CASE WHEN _until <= {self.horizon} THEN 0 ELSE 1 END::BIGINT"

    def _dated(self, parts: list[pa.Table], nulls: frozenset[str]) -> str:
        """Return SQL for the records with their times; a delete without one has that of the last version before it."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        if "_time" not in nulls:
            return f"SELECT *, _time AS _from FROM ({rows})"
        key = self.op.identity
        last = (
            f"SELECT {_of('s', key)}, max(s._from) AS last FROM {self.state.lookup(VERSIONS, key, f'({rows})')} s "
            f"SEMI JOIN ({rows}) d ON {alike('s', 'd', key)} GROUP BY ALL"
        )
        before = f"max(d._time) OVER (PARTITION BY {_of('d', key)} ORDER BY d.{ORDER})"
        dated = (
            f"SELECT d.*, coalesce(d._time, greatest({before}, l.last)) AS _from FROM ({rows}) d "
            f"LEFT JOIN ({last}) l ON {alike('d', 'l', key)}"
        )
        return f"SELECT * FROM ({dated}) WHERE _from IS NOT NULL"

    def _once(self, parts: list[pa.Table], nulls: frozenset[str]) -> bool:
        """Return whether surely no two records are of one key and time."""
        if "_time" in nulls:
            return False
        rows = pa.concat_tables([part.select([*self.op.identity, "_time"]) for part in parts])
        return distinct([rows.column(name) for name in self.op.identity], rows.column("_time").to_numpy())

    def _fresh(self, dated: str, *, once: bool) -> str:
        """Return SQL for one version of each key and time: the later arrival's."""
        names = [*self.op.identity, "_from", *self._others]
        last = f"row_number() OVER (PARTITION BY {', '.join(self.op.identity)}, _from ORDER BY {ORDER} DESC) = 1"
        return f"SELECT {', '.join(names)}, _weight < 0 AS _gone FROM ({dated}){'' if once else f' QUALIFY {last}'}"

    # ---- the stream's rows ----

    def _answerable(self, left: list[pa.Table]) -> pa.Table | None:
        """Return the rows in time, and the late ones whose versions are kept; the others are put aside.

        A left join gives those at once, with nulls.
        """
        rows, late, self.result.counts = split_late(left, self.op.grace, self.watermark)
        self.result.late = unanswered = list[pa.Table]()
        oldest = (self.watermark or 0) - self.op.grace - self.op.history  # without a watermark no row is late
        for part in late:
            kept = pc.fill_null(pc.greater_equal(self._at(part), oldest), fill_value=False)
            rows += [answered] if (answered := part.filter(kept)).num_rows else []
            self.result.counts.late -= answered.num_rows
            unanswered += [self._unmatched(old)] if (old := part.filter(pc.invert(kept))).num_rows else []
        if not rows:
            return None
        names = [name for name, _ in self.join.left]
        return without_zones(
            pa.concat_tables([part.select([*names, "_time"]) for part in rows], promote_options="permissive")
        )

    def _due(self, arrived: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether its result is final; one without a time has nothing to wait for."""
        at = self._at(arrived)
        return pc.is_null(at) if self.final is None else pc.fill_null(pc.less(at, self.final), fill_value=True)

    def _at(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the times that rows look up."""
        return rows.column(self.op.at).cast(pa.int64())

    def _ready(self, arrived: pa.Table | None, due: pa.ChunkedArray | None) -> list[pa.Table]:
        """Return the rows to match now: those that waited, then those that arrived."""
        ready = [arrived.filter(due)] if arrived is not None else []
        if self.final is not None:
            ready = [*self.state.between(WAITING, None, self.final - 1), *ready]
        return [part for part in ready if part.num_rows]

    def _matched(self, ready: pa.Table) -> list[pa.Table]:
        """Return rows with their versions, in the order in which they arrived."""
        rows, matched = self._with_one_version(ready) or self._with_versions(ready)
        if self.horizon is not None:
            unmatched = self._at(ready).filter(pa.array(~matched))
            self.result.counts.too_old += pc.sum(pc.less(unmatched, self.horizon)).as_py() or 0
        return [self._output(self.duck.register(rows))] if rows.num_rows else []

    def _with_one_version(self, ready: pa.Table) -> tuple[pa.Table, Flags] | None:
        """Return rows with the one version that each may match, and which do; None where SQL must find them."""
        shared = self.op.shared
        if set(shared) != set(self.op.identity):
            return None
        probe = [ready.column(name) for name, _ in self.join.on]
        parts = [part for part in self.state.find(VERSIONS, shared, probe, ready.num_rows) if part.num_rows]
        if not parts:
            return None
        versions = pa.concat_tables(parts).combine_chunks()
        keys, since = [versions.column(name) for name in shared], versions.column("_from").to_numpy()
        found = latest(probe, self._at(ready).fill_null(ALWAYS).to_numpy(), keys, since)
        if found is None:
            return None
        matched = (found >= 0) & ~versions.column("_gone").to_numpy()[found]
        versions = versions.select([name for name, _ in self.join.right])
        if self.join.where:
            pairs = self.duck.register(
                _joined(ready.filter(pa.array(matched)), versions.take(pa.array(found[matched])))
            )
            holds = self.duck.arrow(f"SELECT coalesce(({self.join.where})::BOOLEAN, false) FROM {pairs}")
            matched[matched] = holds.column(0).to_numpy()
        if self.join.how == "left":
            return _joined(ready, versions.take(pa.array(found, mask=~matched))), matched
        return _joined(ready.filter(pa.array(matched)), versions.take(pa.array(found[matched]))), matched

    def _with_versions(self, ready: pa.Table) -> tuple[pa.Table, Flags]:
        """Return rows with the versions of the keys that equal theirs, found by SQL, and which rows match any."""
        (ready,) = numbered([ready.append_column(_AT, self._at(ready))])
        columns = [*(name for name, _ in (*self.join.left, *self.join.right)), "_time", ORDER]
        valid = "NOT _gone" + (f" AND ({self.join.where})" if self.join.where else "")
        pairs = self._versions_of(self.duck.register(ready))
        found = self.duck.arrow(f"SELECT {', '.join(columns)} FROM {pairs} WHERE {valid}")
        matched = np.zeros(ready.num_rows, dtype=np.bool_)
        matched[found.column(ORDER).to_numpy()] = True
        if self.join.how == "left":
            unmatched = self.duck.register(ready.filter(pa.array(~matched)))
            nulls = self.duck.arrow(f"SELECT {', '.join(columns)} FROM (SELECT *, {self._nulls} FROM {unmatched})")
            found = pa.concat_tables([found, nulls])
        return in_order(found, len(columns) - 1), matched

    def _versions_of(self, probe: str) -> str:
        """Return SQL for each probe row and the last versions of its time or before, one of each key."""
        equal = " AND ".join(f"{ours} = {theirs}" for ours, theirs in self.join.on)
        own = [ours for ours, _ in self.join.on]
        shared = self.op.shared
        versions = f"(FROM {self.state.lookup(VERSIONS, shared, probe, named=own)} v SEMI JOIN {probe} a ON {equal})"
        if set(shared) == set(self.op.identity):
            return f"{probe} a ASOF JOIN {versions} v ON {equal} AND a.{_AT} >= v._from"
        ids = [f"{name} AS i{i}" for i, name in enumerate(self.op.identity)]
        found = f"(SELECT DISTINCT {', '.join([*ids, *shared])} FROM {versions})"
        pairs = f"(SELECT a.*, k.* EXCLUDE ({', '.join(shared)}) FROM {probe} a JOIN {found} k ON {equal})"
        same = " AND ".join(f"e.i{i} IS NOT DISTINCT FROM v.{name}" for i, name in enumerate(self.op.identity))
        return f"{pairs} e ASOF JOIN {versions} v ON {same} AND e.{_AT} >= v._from"

    @property
    def _nulls(self) -> str:
        """The table's columns where there is no row of it, in SQL."""
        return ", ".join(f"NULL::{kind} AS {name}" for name, kind in self.join.right)

    def _unmatched(self, part: pa.Table) -> pa.Table:
        """Return rows of the stream as rows of the join, with nulls for the table's columns."""
        return self._output(f"(SELECT *, {self._nulls} FROM {self.duck.register(part)})")

    def _output(self, rows: str) -> pa.Table:
        """Return the result's columns of rows of both sides."""
        columns = [f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.join.output)]
        output = self.duck.arrow(f"SELECT {', '.join([*columns, '1::INTEGER AS _weight', '_time'])} FROM {rows}")
        return output.rename_columns([*(name for name, _, _ in self.join.output), "_weight", "_time"])

    # ---- state ----

    def _forget(self, watermark: int) -> None:
        """Drop the versions that none may look up."""
        horizon = watermark - self.op.grace - self.op.history
        over = f"_until <= {horizon} OR (_gone AND _until = {NEVER} AND _from <= {horizon})"
        self.state.evict(VERSIONS, over, of=("_until", "_gone", "_from"))


def _joined(left: pa.Table, right: pa.Table) -> pa.Table:
    """Return the columns of two tables of as many rows."""
    return pa.table([*left.columns, *right.columns], names=[*left.column_names, *right.column_names])


def _of(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)
