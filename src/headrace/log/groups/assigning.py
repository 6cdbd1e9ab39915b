"""Which member of a group gets which partitions: pure functions, after Kafka's assignors of the same names.

Each takes the partitions, the members with the topics that each wants, and who has what now. Each gives every partition
that somebody wants to exactly one member that wants its topic, and the same answer for the same input.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Place = tuple[str, int]
    Assignor = Callable[[Sequence[Place], Mapping[str, Collection[str]], Mapping[Place, str]], dict[Place, str]]


def by_range(
    places: Sequence[Place], members: Mapping[str, Collection[str]], owners: Mapping[Place, str]
) -> dict[Place, str]:
    """Give each member neighbours: of each topic as many partitions as the others, or one more for the first members.

    Topics with equally many partitions are divided alike, so equal partitions of them meet at one member.
    """
    del owners
    found: dict[Place, str] = {}
    for topic, of_topic in groupby(sorted(places), key=lambda place: place[0]):
        wanting = sorted(member for member, topics in members.items() if topic in topics)
        partitions = list(of_topic)
        if not wanting:
            continue
        share, more = divmod(len(partitions), len(wanting))
        at = 0
        for number, member in enumerate(wanting):
            size = share + (number < more)
            found |= dict.fromkeys(partitions[at : at + size], member)
            at += size
    return found


def by_turns(
    places: Sequence[Place], members: Mapping[str, Collection[str]], owners: Mapping[Place, str]
) -> dict[Place, str]:
    """Give the partitions of all topics to the members in turn."""
    del owners
    order, at = sorted(members), 0
    found: dict[Place, str] = {}
    for place in sorted(places):
        for step in range(len(order)):
            member = order[(at + step) % len(order)]
            if place[0] in members[member]:
                found[place] = member
                at += step + 1
                break
    return found


def sticky(
    places: Sequence[Place], members: Mapping[str, Collection[str]], owners: Mapping[Place, str]
) -> dict[Place, str]:
    """Balance, and leave where it is what need not move.

    No member has two partitions more than another one that wants one of them.
    """
    found: dict[Place, str] = {}
    has: dict[str, list[Place]] = defaultdict(list)
    for place in sorted(places):
        owner = owners.get(place, "")
        if owner in members and place[0] in members[owner]:
            found[place] = owner
            has[owner].append(place)
    for place in sorted(places):
        wanting = [member for member, topics in members.items() if place[0] in topics]
        if place not in found and wanting:
            member = min(wanting, key=lambda each: (len(has[each]), each))
            found[place] = member
            has[member].append(place)
    while (move := _uneven(members, has)) is not None:
        place, giver, taker = move
        has[giver].remove(place)
        has[taker].append(place)
        found[place] = taker
    return found


def _uneven(
    members: Mapping[str, Collection[str]], has: Mapping[str, Sequence[Place]]
) -> tuple[Place, str, str] | None:
    """Return a partition that would balance two members, the one that has it and the one that gets it."""
    for giver in sorted(members, key=lambda each: (-len(has[each]), each)):
        for taker in sorted(members, key=lambda each: (len(has[each]), each)):
            if len(has[giver]) - len(has[taker]) < 2:  # noqa: PLR2004 - one more is even
                break
            for place in sorted(has[giver], reverse=True):
                if place[0] in members[taker]:
                    return place, giver, taker
    return None


ASSIGNORS: dict[str, Assignor] = {"range": by_range, "round-robin": by_turns, "sticky": sticky}
