"""An operator alone in one shard: epochs on Arrow tables, without a level, a program or an engine around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.kernels.delta import Delta
from headrace.kernels.duck import IN_MEMORY, Duck
from headrace.kernels.op import Context, StatefulOp
from headrace.kernels.state.keyed import KeyedState
from headrace.kernels.state.scanned import ScannedState

if TYPE_CHECKING:
    from headrace.kernels.op import Operator


def delta(*rows, **kinds):
    """Return a delta of rows `(*columns, weight, time)`; `kinds` are the columns with their types."""
    kinds = {**kinds, "_weight": pa.int32(), "_time": pa.int64()}
    columns = zip(*rows, strict=True) if rows else [[]] * len(kinds)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)], list(kinds))


class OneShard:
    """Plays epochs of one operator; its state is in `folder`, as after a commit of each epoch."""

    def __init__(self, op: Operator, folder, *, host=None):
        self.op, self.folder = op, folder
        self.duck = Duck(None if host is None else IN_MEMORY, host=host)
        self.head, self.epoch, self.previous = None, 0, None
        op.define(self.duck)

    def step(self, *inputs, watermark=None):
        """Run an epoch; return the rows of the delta as tuples, and keep the whole result."""
        self.duck.begin()
        state = self._open() if isinstance(self.op, StatefulOp) else None
        context = Context(
            duck=self.duck,
            epoch=self.epoch,
            watermark=watermark,
            previous=self.previous,
            opened=state,
        )
        deltas = [Delta(self.duck, given if isinstance(given, list) else [given]) for given in inputs]
        self.result = self.op.run(deltas, context)
        rows = tuples(Delta(self.duck, self.result.delta).tables)
        self.late = tuples(self.result.late)
        if state is not None:
            self.head = state.save(self.folder, self.epoch, "once", sync=False)
        self.duck.commit()
        self.duck.forget()
        self.epoch, self.previous = self.epoch + 1, watermark
        return rows

    def kept(self):
        """Return how many rows each table of the state has."""
        state = self._open()
        return {table: self.duck.rows(f"SELECT count(*) FROM {state.name(table)}")[0][0] for table in state.tables}

    def _open(self):
        if self.op.looks_up:
            return KeyedState(self.duck, self.op.tables(), self.head, self.folder)
        state = ScannedState(self.duck, self.op.step, self.op.tables(), self.head)
        state.restore(self.folder)
        return state


def tuples(tables):
    """Return the rows of tables as tuples."""
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]
