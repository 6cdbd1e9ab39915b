"""Equal stateless steps over equal rows are computed once, however often they were written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.kernels.query import Query
from headrace.kernels.rename import Facts

if TYPE_CHECKING:
    from headrace.kernels.op import Op
    from headrace.kernels.program import Level, Program


def equal_queries(program: Program) -> Program:
    """Drop each query that another one of its level equals; what reads it reads that one.

    Calls of the user's functions are no part of a query, so a function that draws its results draws them as often as
    it was written.
    """
    return replace(program, levels=tuple(_without_repeats(level) for level in program.levels))


def _without_repeats(level: Level) -> Level:
    firsts: dict[object, int] = {}
    same: dict[int, int] = {}
    ops: list[Op] = []
    for op in level.ops:
        now = reading(op, same)
        if isinstance(now, Query | Facts):
            computed = _computed(now)
            if computed in firsts:
                same[now.output] = firsts[computed]
                continue
            firsts[computed] = now.output
        ops.append(now)
    repeated = set(same.values())
    uses = [number for op in ops for number in op.inputs]
    shared = {number for number in repeated if uses.count(number) > 1}
    return replace(
        level,
        ops=tuple(replace(op, shared=True) if isinstance(op, Query) and op.output in shared else op for op in ops),
    )


def _computed(op: Query | Facts) -> object:
    """Return what an operation computes, equal for equal ones."""
    if isinstance(op, Facts):
        return op.inputs, op.columns
    return op.inputs, op.before, op.after, op.checks, op.dead


def reading(op: Op, same: dict[int, int]) -> Op:
    """Return an operation that reads other deltas in the place of some."""
    inputs = tuple(same.get(number, number) for number in op.inputs)
    return op if inputs == op.inputs else replace(op, inputs=inputs)
