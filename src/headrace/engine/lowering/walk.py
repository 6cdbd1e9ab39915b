"""The walk through a plan: each node becomes operations of its level, with numbered deltas and edges between them.

What a node becomes is registered with `lowered`: stateless steps in `stateless`, those with state in `stateful`, where
a new one needs nothing of its own: its node names its operator and the parameters of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.engine.lowering.grouping import grouping_of
from headrace.engine.lowering.keys import replaced
from headrace.engine.lowering.staging import stage_of
from headrace.expressions import calls_of
from headrace.expressions.clock import reads_clock
from headrace.kernels.call import Call, FunctionCall
from headrace.kernels.exchange import Send
from headrace.kernels.op import Check, StatefulOp
from headrace.kernels.program import Intake, Level, Program
from headrace.kernels.query import Query
from headrace.kernels.rename import Facts
from headrace.kernels.snapshot import Snapshot
from headrace.plan.columns_read import columns_read
from headrace.plan.nodes import ARRIVED, Aggregate, Node, Top

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.expressions import Scalar
    from headrace.kernels.op import Op
    from headrace.plan.plan import Plan

DELTA = "_weight, _time"


@singledispatch
def lowered(node: Node, to: Lowering) -> None:  # noqa: ARG001 -- what is registered for a node takes both
    """Add a node's operations."""
    raise TypeError(node)


class Lowering:
    """A plan on its way to operations: their numbers, edges and levels."""

    def __init__(self, plan: Plan, shards: int, snapshots: frozenset[str] = frozenset()) -> None:
        self.plan = plan
        self.snapshots = snapshots
        self.shards = shards
        self.ops: list[list[Op]] = [[] for _ in range(plan.depth + 1)]
        self.receives: list[list[tuple[int, int]]] = [[] for _ in range(plan.depth + 1)]
        self.intakes: list[Intake] = []
        self.deltas: dict[int, int] = {}
        self.lates: dict[int, int] = {}
        self.raw: dict[int, int] = {}  # of nodes whose rows are records of a stream, these as they were read
        self.uses = uses_of(plan)
        self._read = columns_read(plan)
        self._dead: dict[tuple[int, bool], str | None] = {}
        for source in plan.sources():
            topic, says = source.topic or plan.name(source), source.on_error
            self._dead[id(source), False] = topic if says == "dead_letter" else None
            self._dead[id(source), True] = topic if says != "fail" else None
        self.numbers = 0
        self.edges = 0

    def program(self) -> Program:
        """Return all levels."""
        for node in self.plan.nodes:
            if self.plan.name(node) in self.snapshots:
                self._snapshot(node)
            else:
                self._without_rows(node)
                lowered(node, self)
        for sink in self.plan.sinks:
            self.add(self.level(sink.up), stage_of(sink, self.deltas[id(sink.up)]))
        levels = tuple(
            Level(
                number=number,
                ops=tuple(ops),
                receives=tuple(self.receives[number]),
                reads_clock=any(reads_clock(op) for op in ops),
            )
            for number, ops in enumerate(self.ops)
        )
        return Program(app=self.plan.app, shards=self.shards, intakes=tuple(self.intakes), levels=levels)

    # ---- a part of a plan ----

    def _without_rows(self, node: Node) -> None:
        """Give the steps above that are not in the plan deltas in which no row is ever put."""
        for up in node.ups:
            self.deltas.setdefault(id(up), self.number())

    def _snapshot(self, node: Node) -> None:
        """Add a step of which only the state is read: in the place of its operator, without what comes before."""
        self._without_rows(node)
        before = [len(ops) for ops in self.ops], [len(received) for received in self.receives]
        lowered(node, self)
        for level, (ops, received) in enumerate(zip(*before, strict=True)):
            added = self.ops[level][ops:]
            at = next((i for i, op in enumerate(added) if isinstance(op, StatefulOp)), len(added))
            behind = [Snapshot.instead_of(op) if isinstance(op, StatefulOp) else op for op in added[at:]]
            self.ops[level][ops:], self.receives[level][received:] = behind, []

    # ---- numbers and levels ----

    def level(self, node: Node) -> int:
        """Return the level of a node."""
        return self.plan.level(node)

    def delta_of(self, node: Node) -> str:
        """Return the columns that a node's rows have besides its own, as SQL."""
        return f"{DELTA}, {quote(ARRIVED)}" if id(node) in self.plan.arrivals else DELTA

    def columns_read(self, node: Node) -> tuple[str, ...]:
        """Return the columns of a node's rows that anything reads, in their order."""
        return tuple(name for name in node.schema.names if name in self._read[id(node)])

    def delta_names(self, node: Node) -> list[str]:
        """Return the names of those columns."""
        return [*DELTA.split(", "), *([ARRIVED] if id(node) in self.plan.arrivals else [])]

    def add(self, level: int, op: Op) -> None:
        """Put an operation at the end of a level."""
        self.ops[level].append(op)

    def number(self) -> int:
        """Return a number for a delta."""
        self.numbers += 1
        return self.numbers

    def at(self, node: Node, level: int) -> int:
        """Return the delta of a node's rows at a level: its own, or a copy carried to a later one."""
        number = self.deltas[id(node)]
        if self.level(node) == level:
            return number
        return self.carried(number, self.plan.name(node), self.level(node), level, None)

    def carried(
        self, number: int, step: str, here: int, there: int, keys: tuple[str, ...] | None, *, to_all: bool = False
    ) -> int:
        """Send a delta through an exchange and return its number on the other side."""
        self.edges += 1
        self.add(here, Send(step=step, inputs=(number,), edge=self.edges, level=there, keys=keys, to_all=to_all))
        arrived = self.number()
        self.receives[there].append((self.edges, arrived))
        return arrived

    def before_exchange(self, op: StatefulOp, side: int, rows: int, level: int, late: int | None = None) -> int:
        """Return the delta of what an operator does to an input before an exchange: a new one, or the input."""
        output = self.number()
        first = op.before_exchange(side, rows, output=output, late=late)
        if first is None:
            return rows
        self.add(level, first)
        return output

    def facts(self, node: Node) -> int | None:
        """Return the delta of a stream's records as they were read, if a node's rows are these; else None."""
        rows = self.raw.get(id(node))
        if rows is None:
            return None
        output, columns = self.number(), tuple(node.schema.names)
        self.add(0, Facts(step=self.plan.name(node), inputs=(rows,), output=output, columns=columns))
        return output

    def keyed(self, node: Node, rows: int, keys: Iterable[str]) -> int:
        """Return the rows above a step with its keys in the form in which they are keys."""
        forms = replaced(keys, node.ups[0].schema)
        if not forms:
            return rows
        output, columns = self.number(), ", ".join(f"{sql} AS {quote(name)}" for name, sql in forms.items())
        step, before = self.plan.name(node), f"SELECT * REPLACE ({columns}) FROM"
        self.add(
            self.level(node.ups[0]),
            Query(step=step, inputs=(rows,), output=output, before=before, after="", shared=False),
        )
        return output

    def query(
        self,
        node: Node,
        before: str,
        after: str = "",
        *,
        inputs: tuple[int, ...] | None = None,
        scalars: Sequence[Scalar] = (),
        passes: Mapping[str, str] | None = None,
        computes: bool = True,
    ) -> None:
        """Compute a node's rows by SQL around those of its inputs; it computes `scalars` of them.

        `passes`: each row above is one of its own; for the name of each column that it has as it is, the one above.
        `computes`: there are others.

        Where rows that fail are taken out, what may fail is computed for every row, not only where it is needed: so it
        does not depend on the other rows which rows are taken out.
        """
        level = self.level(node)
        if inputs is None:
            inputs = self.inputs(node)
        output = self.deltas[id(node)] = self.number()
        checks, dead = self.checks(scalars), self.dead(node)
        shared = self.uses.get(id(node), 0) > 1 or bool(checks and dead)
        query = Query(
            step=self.plan.name(node),
            inputs=inputs,
            output=output,
            before=before,
            after=after,
            shared=shared,
            checks=checks,
            dead=dead,
        )
        if passes is not None:
            names = [*((old, new) for new, old in passes.items()), *((name, name) for name in self.delta_names(node))]
            query = replace(query, passes=tuple(names), computes=computes)
        self.add(level, query)

    def checks(self, scalars: Iterable[Scalar]) -> tuple[Check, ...]:
        """Return the expressions that may fail on a row."""
        return tuple(
            Check(text=scalar.text, sql=scalar.sql, columns=tuple(sorted(scalar.columns)))
            for scalar in scalars
            if scalar.raises
        )

    def dead(self, node: Node, *, refused: bool = False) -> str | None:
        """Return the topic for whose dead letters a step's failing rows are taken out, or None: they stop the app.

        `refused`: rows that break a rule (`Check.refuses`), which only stop the app where that was asked for.
        """
        if (id(node), refused) not in self._dead:
            above = [self.dead(up, refused=refused) for up in node.ups]
            self._dead[id(node), refused] = above[0] if above and None not in above else None
        return self._dead[id(node), refused]

    def inputs(self, node: Node) -> tuple[int, ...]:
        """Return the deltas of the steps above, at the level of a node."""
        return tuple(self.at(up, self.level(node)) for up in node.ups)

    def called(self, node: Node, level: int, rows: int, scalars: Sequence[Scalar], columns: Iterable[str]) -> int:
        """Return a delta with those columns and one for each call of the user's functions in the expressions."""
        calls = calls_of(scalars)
        if not calls:
            return rows
        step, pruned, output = self.plan.name(node), self.number(), self.number()
        before = f"SELECT {', '.join([*map(quote, columns), DELTA])} FROM"
        self.add(level, Query(step=step, inputs=(rows,), output=pruned, before=before, after="", shared=False))
        functions = tuple(
            FunctionCall(
                column=call.column,
                name=call.function.name,
                function=call.function.function,
                arguments=tuple((argument.sql, argument.type) for argument in call.arguments),
                returns=call.function.returns,
            )
            for call in calls
        )
        self.add(level, Call(step=step, inputs=(pruned,), output=output, calls=functions, dead=self.dead(node)))
        return output

    def with_calls(self, node: Node, scalars: Sequence[Scalar], columns: Iterable[str]) -> tuple[int, ...]:
        """Return the inputs of a stateless step over one delta, with its calls."""
        (above,) = self.inputs(node)
        read = [*columns, *([ARRIVED] if id(node) in self.plan.arrivals else [])]
        return (self.called(node, self.level(node), above, scalars, read),)


def uses_of(plan: Plan) -> dict[int, int]:
    """Return how often each node's rows are read; a step that reads them twice counts twice."""
    uses: dict[int, int] = {}
    for node in plan.nodes:
        for up in node.ups:
            grouping = grouping_of(node) if isinstance(node, Aggregate) else None
            twice = grouping.reads_twice if grouping is not None else isinstance(node, Top) and node.detects_late
            uses[id(up)] = uses.get(id(up), 0) + (2 if twice else 1)
    for sink in plan.sinks:
        uses[id(sink.up)] = uses.get(id(sink.up), 0) + 1
    return uses


def columns_of(node: Node) -> str:
    """Return the columns of a step as SQL."""
    return ", ".join(quote(name) for name in node.schema.names)
