"""From the plan to the program: each node becomes operations of its level."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.lowering import joins, match, over, search, stateful, stateless
from headrace.engine.lowering.rules import simplified
from headrace.engine.lowering.walk import Lowering

if TYPE_CHECKING:
    from headrace.kernels.program import Program
    from headrace.plan.plan import Plan

__all__ = ["joins", "lower", "match", "over", "search", "stateful", "stateless"]


def lower(
    plan: Plan, shards: int, *, snapshots: frozenset[str] = frozenset(), begins: frozenset[str] = frozenset()
) -> Program:
    """Return the program that computes a plan on so many shards.

    Of the steps named in `snapshots` it reads only the state: their output so far is the input of the steps below.
    Where a step above is not among the plan's, no row comes from it. Those in `begins` have no state yet.
    """
    return simplified(replace(Lowering(plan, shards, snapshots).program(), begins=begins))
