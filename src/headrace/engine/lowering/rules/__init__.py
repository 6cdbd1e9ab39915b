"""Rules that make a program smaller: each is a function from a program to one that computes the same.

They rewrite programs, not plans: the plan says what a step is called and what it keeps, which storages remember.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.lowering.rules.equal_exchanges import equal_exchanges
from headrace.engine.lowering.rules.equal_queries import equal_queries

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernels.program import Program

RULES: tuple[Callable[[Program], Program], ...] = (equal_queries, equal_exchanges)


def simplified(program: Program) -> Program:
    """Return the program after all rules, until none changes it: one may open the way for another."""
    before = None
    while before != program:
        before = program
        for rule in RULES:
            program = rule(program)
    return program
