"""Rows that several steps need in the same shards go through one exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.lowering.rules.equal_queries import reading
from headrace.kernels.exchange import Send

if TYPE_CHECKING:
    from headrace.kernels.op import Op
    from headrace.kernels.program import Program


def equal_exchanges(program: Program) -> Program:
    """Drop each sending of rows that are sent to the same level by the same keys already."""
    dropped: dict[int, int] = {}
    levels = []
    for level in program.levels:
        arrived = dict(level.receives)
        same = {arrived[edge]: arrived[dropped[edge]] for edge in arrived if edge in dropped}
        edges: dict[object, int] = {}
        ops: list[Op] = []
        for op in level.ops:
            now = reading(op, same)
            if isinstance(now, Send):
                sent = (now.inputs, now.level, now.keys, now.to_all)
                if sent in edges:
                    dropped[now.edge] = edges[sent]
                    continue
                edges[sent] = now.edge
            ops.append(now)
        receives = tuple((edge, number) for edge, number in level.receives if edge not in dropped)
        levels.append(replace(level, ops=tuple(ops), receives=receives))
    return replace(program, levels=tuple(levels))
