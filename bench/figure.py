"""A figure: what was measured, against what, and whether it reaches its target."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class WrongAnswer(AssertionError):
    """The two sides gave different answers, so a figure about them would mean nothing."""


def same(what: str, ours: object, theirs: object) -> None:
    """Check that two answers are equal.

    Raises:
        Wrong: they differ.

    """
    if ours != theirs:
        raise WrongAnswer(f"{what}: ours is {ours}, theirs is {theirs}")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """`must` is the target of `ratio`, such as ">= 4" or "<= 0.7"; None where there is none."""

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
        """Whether the ratio reaches its target."""
        if self.must is None:
            return True
        sign, bound = self.must.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)

    def json(self) -> str:
        """Return the figure as one line of JSON."""
        fields = {
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
        return json.dumps(fields, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A rival that could not be measured on this machine, and why."""

    bench: str
    rival: str
    reason: str

    def json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps({"bench": self.bench, "rival": self.rival, "skipped": self.reason}, ensure_ascii=False)


def paired(over: Sequence[float], under: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the median, and the least and greatest, of the ratios of runs measured in turn."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return statistics.median(ratios), (min(ratios), max(ratios))


def compare_times(
    bench: str, *, what: str, rival: str, must: str | None, ours: Sequence[float], theirs: Sequence[float], unit: str
) -> Figure:
    """Return the figure of times measured in turn; its ratio is theirs over ours."""
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
    """Return the value below which the fraction `part` of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def table(figures: Sequence[Figure | Skipped]) -> str:
    """Return figures as text for people."""
    lines = []
    for f in figures:
        if isinstance(f, Skipped):
            lines += [f"{f.bench}: {f.rival} was skipped: {f.reason}"]
            continue
        spread = f" ({f.spread[0]:.2f} to {f.spread[1]:.2f})" if f.spread else ""
        verdict = "" if f.must is None else f"  must be {f.must}: {'holds' if f.holds else 'MISSED'}"
        lines += [
            f"{f.bench}: {f.what}",
            f"    against {f.rival}",
            f"    ratio {f.ratio:.3g}{spread}{verdict}",
            f"    ours {f.ours:.4g} {f.unit}, theirs {f.theirs:.4g} {f.unit}; runs: {f.runs}",
        ]
    return "\n".join(lines)
