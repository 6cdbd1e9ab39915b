"""What is different between two stored descriptions, and whether kept state goes on under the second one."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from headrace.base.schema import wider_integer
from headrace.base.time import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

_GRACE = re.compile(r", grace ([^,]+)")
_WORDS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|\W""")
"""The words of SQL; a quoted name or text is one, and so is never the name of a type."""
_HELD = frozenset(("count", "sum", "avg", "min", "max"))
"""The aggregates whose state does not depend on how wide an integer is."""


def place(full: str) -> tuple[str, str]:
    """Return what a sink is, and its name, from its name in a plan: `view:totals`."""
    kind, _, name = full.partition(":")
    return {"call": "sink"}.get(kind, kind), name


def shown_offsets(since: Mapping[str, Mapping[str, int]]) -> str:
    """Return offsets by source and partition for people."""
    shown = []
    for source, offsets in since.items():
        if len(offsets) == 1:
            shown.append(f'offset {next(iter(offsets.values()))} of "{source}"')
        else:
            listed = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(offsets.items()))
            shown.append(f'the offsets of "{source}" ({listed})')
    return " and ".join(shown) or "the next epoch"


def wider(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether nothing is different but integers that have become wider, in state that holds them as they are."""
    held = {call.partition("(")[0] for call in was.get("aggregates", ())} <= _HELD
    return held and set(was) == set(now) and all(_wider(was[name], now[name]) for name in was)


def _wider(was: Any, now: Any) -> bool:
    """Whether a part of an identity is the same, but for integers that have become wider.

    A type is a value by the name of a column, or a word within a text, before which there is a name or an expression:
    columns may be named as types are.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        typed = ((was[name], now[name]) for name in was if name in now)
        return set(was) == set(now) and all(wider_integer(str(a), str(b)) or _wider(a, b) for a, b in typed)
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_wider, was, now))
    if not isinstance(was, str) or not isinstance(now, str):
        return bool(was == now)
    words = enumerate(zip_longest(_WORDS.findall(was), _WORDS.findall(now), fillvalue=""))
    return all(a == b or (at > 0 and wider_integer(a, b)) for at, (a, b) in words)


def longer_grace(was: Mapping[str, Any], now: Mapping[str, Any]) -> int | None:
    """Return by how many microseconds the grace is longer, if nothing else is different."""
    plain = [dict(each) for each in (was, now)]
    texts = []
    for each in plain:
        window = str(each.get("window") or "")
        texts.append(str(each.pop("grace", "")) or "".join(_GRACE.findall(window)))
        each["window"] = _GRACE.sub("", window)
    if plain[0] != plain[1] or "" in texts:
        return None
    before, after = (duration(text, what="grace") for text in texts)
    return after - before if after > before else None


def difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what is different, for people."""
    names = dict.fromkeys([*was, *now])
    return " ".join(f"{n}: was {was.get(n)}, is {now.get(n)}." for n in names if was.get(n) != now.get(n))
