"""The checks at the end of a demo: its results against totals that were counted in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Check(NamedTuple):
    """One claim: what was compared, whether it holds, and the first difference if not."""

    what: str
    holds: bool
    differs: str = ""


def same(what: str, ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> Check:
    """Return whether two countings of the same thing agree everywhere."""
    for key in sorted({*ours, *theirs}, key=str):
        if ours.get(key) != theirs.get(key):
            return Check(what, holds=False, differs=f"{key}: {ours.get(key)} here, {theirs.get(key)} there")
    return Check(what, holds=True)
