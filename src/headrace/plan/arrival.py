"""Which rows know when they were stored, for the lookups as of arrival, and which sources are read in that order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.plan.nodes import LookupJoin, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.plan.nodes import Node


@dataclass(frozen=True, slots=True)
class ReadInOrder:
    """A source that is read in the order of arrival together with all others of its `group`.

    `first`: of records that arrived at one instant, those that a lookup's table is made of come first.
    """

    group: int
    first: bool


def arrivals(nodes: Sequence[Node]) -> frozenset[int]:
    """Return the steps (by `id`) whose rows carry `ARRIVED`: those above a lookup, as far as it is known there.

    Rows that a step computes from several others, such as an aggregate's, arrived at no instant: as a table's changes
    they are there from the begin of their epoch, and as a stream's they see what its whole epoch left.
    """
    found: dict[int, Node] = {}
    waiting = [up for node in nodes if isinstance(node, LookupJoin) for up in node.ups if _known(up)]
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting += node.arrival_inputs or ()
    return frozenset(found)


def _known(node: Node) -> bool:
    return node.arrival_inputs is not None and all(_known(up) for up in node.arrival_inputs)


def read_in_order(nodes: Sequence[Node]) -> dict[int, ReadInOrder]:
    """Return the sources (by `id`) that lookups read; those of lookups that share a source are one group."""
    groups: dict[int, int] = {}
    streams: set[int] = set()
    for number, node in enumerate(nodes):
        if not isinstance(node, LookupJoin):
            continue
        left, right = (_sources(up) for up in node.ups)
        streams |= left
        joined = {groups[source] for source in left | right if source in groups} | {number}
        groups |= dict.fromkeys(left | right, number)
        groups |= {source: number for source, group in groups.items() if group in joined}
    return {source: ReadInOrder(group, source not in streams) for source, group in groups.items()}


def _sources(node: Node) -> set[int]:
    return {id(each) for each in node.walk() if isinstance(each, Source) and each.dates_records}
