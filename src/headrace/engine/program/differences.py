"""What is different between two stored descriptions, and whether kept state goes on under the second one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from headrace.base.schema import wider_integer
from headrace.base.time import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

_GRACE = re.compile(r", grace ([^,]+)")
_WORDS = re.compile(r"\w+|\W")
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
    texts = [_WORDS.findall(json.dumps(each, sort_keys=True)) for each in (was, now)]
    if len(texts[0]) != len(texts[1]) or not {call.partition("(")[0] for call in was.get("aggregates", ())} <= _HELD:
        return False
    return all(before == after or wider_integer(before, after) for before, after in zip(*texts, strict=True))


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
