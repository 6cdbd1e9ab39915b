"""A figure: what was measured, against what, and whether it is what the issue demands."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Wrong(AssertionError):
    """Two sides that must give the same answer do not: a figure about them would mean nothing."""


def same(what: str, ours: object, theirs: object) -> None:
    """Hold one answer against the other.

    Raises:
        Wrong: they differ.

    """
    if ours != theirs:
        raise Wrong(f"{what}: ours is {ours}, theirs is {theirs}")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """`ratio` is what `must` speaks of; `must` is like ">= 4" or "<= 0.7", or None where nothing is demanded."""

    bench: str
    what: str
    rival: str
    ratio: float
    must: str | None
    ours: float
    theirs: float
    unit: str
    runs: int
    spread: tuple[float, float] | None = None

    @property
    def holds(self) -> bool:
        """Whether the ratio is what it must be."""
        if self.must is None:
            return True
        sign, bound = self.must.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)

    def json(self) -> str:
        """Return the figure as one line of JSON."""
        made = {
            "bench": self.bench,
            "what": self.what,
            "rival": self.rival,
            "ratio": round(self.ratio, 4),
            "must": self.must,
            "holds": self.holds,
            "ours": round(self.ours, 4),
            "theirs": round(self.theirs, 4),
            "unit": self.unit,
            "runs": self.runs,
        }
        return json.dumps(made, ensure_ascii=False)


def paired(over: Sequence[float], under: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the median of the ratios of runs that were made side by side, and the least and the greatest."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return statistics.median(ratios), (min(ratios), max(ratios))


def beside(
    bench: str, *, what: str, rival: str, must: str | None, ours: Sequence[float], theirs: Sequence[float], unit: str
) -> Figure:
    """Return the figure of times that were taken side by side: how many times ours theirs took."""
    ratio, spread = paired(theirs, ours)
    return Figure(
        bench=bench,
        what=what,
        rival=rival,
        ratio=ratio,
        spread=spread,
        must=must,
        ours=statistics.median(ours),
        theirs=statistics.median(theirs),
        unit=unit,
        runs=len(ours),
    )


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which `part` of the values lie; the greatest one of few."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def table(figures: Sequence[Figure]) -> str:
    """Return figures for people."""
    lines = []
    for f in figures:
        spread = f" ({f.spread[0]:.2f} to {f.spread[1]:.2f})" if f.spread else ""
        verdict = "" if f.must is None else f"  must be {f.must}: {'holds' if f.holds else 'MISSED'}"
        lines += [
            f"{f.bench}: {f.what}",
            f"    against {f.rival}",
            f"    ratio {f.ratio:.3g}{spread}{verdict}",
            f"    ours {f.ours:.4g} {f.unit}, theirs {f.theirs:.4g} {f.unit}; runs: {f.runs}",
        ]
    return "\n".join(lines)
