"""The operations of a level, each over the level's deltas and states.

An operation is known by its class in `spec`: what it does is registered with `do`, what it keeps with `kept`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.kernels import dedupe, top
from headrace.kernels.apply import applied
from headrace.kernels.call import called
from headrace.kernels.duck import typed
from headrace.kernels.exchange import split
from headrace.kernels.groups import grouped, window_top
from headrace.kernels.groups.aggregate import Merging
from headrace.kernels.groups.grouped import Counts
from headrace.kernels.groups.partial import partial
from headrace.kernels.groups.sessions import Sessions
from headrace.kernels.groups.sliding import Sliding
from headrace.kernels.groups.window_top import WindowTopping
from headrace.kernels.joins import as_of_join, lookup_join, stream_join, table_join
from headrace.kernels.latest import Upserting, arrived, kept_rows
from headrace.kernels.order import placed
from headrace.kernels.spec import (
    Apply,
    Arrival,
    AsOfJoin,
    AssignPane,
    Call,
    Dedupe,
    EffectiveTimes,
    LookupJoin,
    Merge,
    NumberArrivals,
    Op,
    Partial,
    PartialTop,
    Query,
    Send,
    SplitLate,
    Stage,
    StatefulOp,
    StreamJoin,
    TableJoin,
    Top,
    Upsert,
)
from headrace.kernels.staging import as_they_are, staged, staged_schema
from headrace.kernels.task import stage

if TYPE_CHECKING:
    from headrace.kernels.level import LevelRun
    from headrace.kernels.state.state import TableSpec


@singledispatch
def do(op: Op, run: LevelRun) -> None:  # noqa: ARG001 -- what is registered for an operation takes both
    """Run one operation of a level."""
    raise TypeError(op)


@do.register(Query)
def _query(op: Query, run: LevelRun) -> None:
    sources = [source for source in map(run.relation, op.inputs) if source is not None]
    if not sources:
        return
    run.relations[op.output] = f"({' UNION ALL '.join(f'{op.before} {rows} {op.after}' for rows in sources)})"
    if op.shared:
        run.came(op.output, run.materialized(op.output))


@do.register(Apply)
def _apply(op: Apply, run: LevelRun) -> None:
    made = [applied(op, part) for part in run.materialized(op.input)]
    run.count(op.step, Counts(rows_out=sum(part.num_rows for part in made)))
    run.came(op.output, [part for part in made if part.num_rows])


@do.register(Call)
def _call(op: Call, run: LevelRun) -> None:
    run.came(op.output, [called(run.duck, op, part) for part in run.materialized(op.input)])


@do.register(Partial)
def _partial(op: Partial, run: LevelRun) -> None:
    rows = run.relation(op.input)
    if rows is None:
        return
    run.define([op])
    watermark = run.task.watermarks.get(op.step)
    judged = partial(run.duck, op.grouping, rows, watermark, want_late=op.late is not None)
    run.count(op.step, judged.counts)
    for number, table in zip(op.outputs, judged.tables, strict=True):
        run.came(number, [table] if table.num_rows else [])
    if op.late is not None and judged.late is not None:
        run.came(op.late, [judged.late])


@do.register(Merge)
def _merge(op: Merge, run: LevelRun) -> None:
    run.define([op])
    kind = Sessions if op.grouping.session else Sliding if op.grouping.sliding else Merging
    merging = kind(
        run.duck,
        op.grouping,
        run.states[op.step],
        run.task.watermarks.get(op.step),
        run.task.previous.get(op.step),
    )
    delta, counts = merging.run([run.materialized(number) for number in op.inputs])
    run.count(op.step, counts)
    run.came(op.output, [delta] if delta is not None else [])
    if op.late is not None and merging.late is not None:
        run.came(op.late, [merging.late])


@do.register(SplitLate)
def _judge(op: SplitLate, run: LevelRun) -> None:
    taken, late, counts = dedupe.judged(run.materialized(op.input), op.reach, run.task.watermarks.get(op.step))
    run.count(op.step, counts)
    run.came(op.output, taken)
    if op.late is not None:
        run.came(op.late, late)


@do.register(Dedupe)
def _dedupe(op: Dedupe, run: LevelRun) -> None:
    now, before = run.task.watermarks.get(op.step), run.task.previous.get(op.step)
    deduping = dedupe.Deduping(run.duck, op, run.keyed(op.step), now, before)
    delta, counts = deduping.run(run.materialized(op.input))
    run.count(op.step, counts)
    run.came(op.output, [delta] if delta is not None and delta.num_rows else [])


@do.register(AssignPane)
def _place(op: AssignPane, run: LevelRun) -> None:
    rows = run.relation(op.input)
    if rows is None:
        return
    watermark = run.task.watermarks.get(op.step)
    made = window_top.placed(run.duck, op.panes, rows, watermark, want_late=op.late is not None)
    run.count(op.step, made.counts)
    run.relations[op.output] = made.rows
    if op.late is not None and made.late is not None:
        run.came(op.late, [made.late])


@do.register(PartialTop)
def _best(op: PartialTop, run: LevelRun) -> None:
    parts = run.materialized(op.input)
    if op.ranking.panes is None:
        run.count(op.step, top.counted(parts))
    run.came(op.output, [top.best(run.duck, op.ranking, parts)] if parts else [])


@do.register(Top)
def _top(op: Top, run: LevelRun) -> None:
    parts = run.materialized(op.input)
    if op.counts:
        run.count(op.step, top.counted(parts))
    delta = _topping(op, run).run(parts)
    if delta is not None and delta.num_rows:
        run.count(op.step, Counts(rows_out=delta.num_rows))
        run.came(op.output, [delta])


def _topping(op: Top, run: LevelRun) -> top.Topping:
    state = run.states[op.step]
    if op.ranking.panes is None:
        return top.Topping(run.duck, op.ranking, state)
    now, before = run.task.watermarks.get(op.step), run.task.previous.get(op.step)
    return WindowTopping(run.duck, op.ranking, state, now, before)


@do.register(Arrival)
def _arrival(op: Arrival, run: LevelRun) -> None:
    rows = run.relation(op.input)
    if rows is not None:
        table = arrived(run.duck, op.keeping, rows, task=run.task.shard)
        run.count(op.step, Counts(rows_in=table.num_rows))
        run.came(op.output, [table] if table.num_rows else [])


@do.register(Upsert)
def _upsert(op: Upsert, run: LevelRun) -> None:
    parts = run.materialized(op.input)
    if parts:
        delta = Upserting(run.duck, op.keeping, run.states[op.step]).run(parts)
        run.count(op.step, Counts(rows_out=delta.num_rows))
        run.came(op.output, [delta] if delta.num_rows else [])


@do.register(StreamJoin)
def _stream_join(op: StreamJoin, run: LevelRun) -> None:
    now, before = run.task.watermarks.get(op.step), run.task.previous.get(op.step)
    joining = stream_join.Joining(run.duck, op, run.keyed(op.step), run.task.epoch, now, before)
    left, right = (run.materialized(number) for number in op.inputs)
    joining.run(left, right)
    run.count(op.step, joining.counts)
    run.came(op.output, joining.out)
    run.came(op.late, joining.late)


@do.register(LookupJoin)
def _lookup(op: LookupJoin, run: LevelRun) -> None:
    left, right = run.materialized(op.left), run.materialized(op.right)
    delta = lookup_join.LookingUp(run.duck, op, run.states[op.step]).run(left, right) if left or right else None
    came = 0 if delta is None else delta.num_rows
    run.count(op.step, Counts(rows_in=sum(part.num_rows for part in left), rows_out=came))
    run.came(op.output, [delta] if delta is not None and came else [])


@do.register(TableJoin)
def _table_join(op: TableJoin, run: LevelRun) -> None:
    left, right = (run.materialized(number) for number in op.inputs)
    if left or right:
        delta = table_join.TableJoining(run.duck, op.join, run.states[op.step]).run(left, right)
        run.count(op.step, Counts(rows_in=sum(part.num_rows for part in (*left, *right)), rows_out=delta.num_rows))
        run.came(op.output, [delta] if delta.num_rows else [])


@do.register(EffectiveTimes)
def _in_force(op: EffectiveTimes, run: LevelRun) -> None:
    run.came(op.output, lookup_join.in_force(run.duck, run.materialized(op.input), op.key))


@do.register(NumberArrivals)
def _number(op: NumberArrivals, run: LevelRun) -> None:
    run.came(op.output, placed(run.materialized(op.input), task=run.task.shard))


@do.register(AsOfJoin)
def _version(op: AsOfJoin, run: LevelRun) -> None:
    now, before = run.task.watermarks.get(op.step), run.task.previous.get(op.step)
    dating = as_of_join.AsOfJoining(run.duck, op, run.keyed(op.step), now, before)
    dating.run(run.materialized(op.left), run.materialized(op.right))
    run.count(op.step, dating.counts)
    run.came(op.output, dating.out)
    run.came(op.late, dating.late)


@do.register(Send)
def _send(op: Send, run: LevelRun) -> None:
    for part in run.materialized(op.input):
        shards = run.task.shards
        here = {run.task.shard % shards: part}
        parts = here if op.keys is None else split(part, op.keys, shards)
        run.outcome.sent += [(op.edge, op.level, shard, rows) for shard, rows in parts.items()]


@do.register(Stage)
def _stage(op: Stage, run: LevelRun) -> None:
    known = run.tables.get(op.input, [])
    if as_they_are(op) and len(known) == 1:
        table = typed(known[0], staged_schema(op))
    else:
        rows = run.relation(op.input)
        if rows is None:
            return
        table = staged(run.duck, op, rows)
    if table.num_rows:
        run.task.fault("before_staging")
        run.outcome.report.staged.append(stage(run.task, run.level.number, op.sink, table))
        run.count(op.sink, Counts(rows_in=table.num_rows))


# ---- what is kept ----


@singledispatch
def kept(op: StatefulOp) -> tuple[TableSpec, ...]:
    """Return the tables that an operation keeps."""
    raise TypeError(op)


def looked_up(op: StatefulOp) -> bool:
    """Whether rows of what an operation keeps are looked up by value, or by time, rather than found by scanning all."""
    return all(table.by or table.ages for table in kept(op))


def lets_out(op: StatefulOp) -> bool:
    """Whether what an operation keeps comes out by time alone: so that an epoch without rows may have much to do."""
    return isinstance(op, AsOfJoin) or (isinstance(op, StreamJoin) and op.join.how != "inner")


@kept.register(Merge)
def _groups(op: Merge) -> tuple[TableSpec, ...]:
    return grouped.tables(op.grouping)


@kept.register(Upsert)
def _rows(op: Upsert) -> tuple[TableSpec, ...]:
    return kept_rows(op.keeping)


@kept.register(LookupJoin)
def _looked_up(op: LookupJoin) -> tuple[TableSpec, ...]:
    return lookup_join.tables(op)


@kept.register(AsOfJoin)
def _dated(op: AsOfJoin) -> tuple[TableSpec, ...]:
    return as_of_join.tables(op)


@kept.register(Dedupe)
def _seen(op: Dedupe) -> tuple[TableSpec, ...]:
    return dedupe.tables(op)


@kept.register(Top)
def _ranked(op: Top) -> tuple[TableSpec, ...]:
    return top.tables(op.ranking)


@kept.register(StreamJoin)
def _buffers(op: StreamJoin) -> tuple[TableSpec, ...]:
    return stream_join.tables(op)


@kept.register(TableJoin)
def _sides(op: TableJoin) -> tuple[TableSpec, ...]:
    return table_join.tables(op.join)
