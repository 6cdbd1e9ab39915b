"""`simulate`: a seed becomes a case, the case is played, and a failure is made small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.testing.simulation.drawing import draw
from headrace.testing.simulation.play import Failure, check, outcome_of
from headrace.testing.simulation.shrinking import MOST_PLAYS, shrink

if TYPE_CHECKING:
    from collections import Counter

    from headrace.testing.simulation.case import Case
    from headrace.testing.simulation.machine import Carrier
    from headrace.testing.simulation.oracle import Oracle


@dataclass(frozen=True)
class Finding:
    """A seed whose case fails: how, and the smallest case found that fails in the same way."""

    seed: int
    failure: Failure
    case: Case

    def text(self) -> str:
        """Return what to read and what to paste into a test."""
        return f"seed {self.seed}: {self.failure}\n\n{self.case.text()}"


def simulate(
    seed: int,
    *,
    carrier: Carrier = "in process",
    oracle: Oracle | None = None,
    most_plays: int = MOST_PLAYS,
    accidents: bool = False,
    endings: Counter[str] | None = None,
) -> Finding | None:
    """Play the case of a seed; return None if every output was what the batch query gives.

    The case is an app of random steps, input with disorder, deletes, nulls and duplicates, cut into epochs, with
    crashes, restarts and tasks that run twice. Its outputs are compared whenever everything is read, and at the end.

    Args:
        seed: any integer; the same one gives the same case, as long as Headrace is the same.
        carrier: what runs the epochs. Spark is slow: a case takes tens of seconds. "threads" is in this process, with
            shards in threads and caches that take turns, as in Spark's workers; its failures need not come again.
        oracle: what answers the batch query; by default DuckDB.
        most_plays: how many smaller cases are tried to make a failure small; 0 leaves it as it is.
        accidents: also older copies that are put back, lost commits, flipped bits, resets and changed programs. Then an
            error of ours is a right answer, too; a wrong output is not.
        endings: counts how the cases ended, by accident.

    """
    case = draw(seed, accidents=accidents)
    outcome = outcome_of(case, carrier=carrier, oracle=oracle)
    failure = outcome.failure
    if endings is not None:
        endings[f"{' + '.join(outcome.accidents) or 'none'}: {outcome.ended if failure is None else failure.kind}"] += 1
    if failure is None:
        return None
    latest = failure

    def fails(smaller: Case) -> bool:
        nonlocal latest
        found = check(smaller, carrier=carrier, oracle=oracle)
        if found is not None and found.kind == failure.kind:
            latest = found
            return True
        return False

    small = shrink(case, fails, most=most_plays)
    return Finding(seed, latest, small)
