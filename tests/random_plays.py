"""What random queries and random programs share: views that are compared after every epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.testing import Driver

RESTART = 2
"""The epoch before which an app is started again: its state is read from files."""
SHOWN = 6


@dataclass
class Played:
    """What was played: how many views were kept and refused, answers with rows, and what was wrong."""

    kept: int = 0
    refused: Counter = field(default_factory=Counter)
    answers: int = 0
    wrong: list[str] = field(default_factory=list)


def compare(
    driver: Driver,
    views: Mapping[str, str],
    epochs: int,
    played: Played,
    *,
    change: Callable[[], None],
    answers: Callable[[str, list[dict]], tuple[Counter, Counter]],
    end: Callable[[], None] | None = None,
    rest: Callable[[], None] | None = None,
) -> None:
    """Run epochs, and compare every view after each, until one is wrong.

    Args:
        driver: the app that has the views.
        views: what each view is, by name.
        epochs: how many.
        played: takes the account.
        change: changes the rows before an epoch, and sends what changed.
        answers: returns a view's rows, and the right ones, of its name and what it holds.
        end: ends the input, after which views are compared once more.
        rest: runs epochs after a change, other than `driver.run`.

    """
    for epoch in range(epochs + (end is not None)):
        if epoch == RESTART:
            driver.restart()
        if epoch < epochs:
            change()
            (rest or driver.run)()
        elif end is not None:
            end()
        for view, text in views.items():
            ours, theirs = answers(view, driver.view(view))
            played.answers += bool(theirs)
            if ours != theirs:
                what = f"too many {_some(ours - theirs)}, missing {_some(theirs - ours)}"
                played.wrong.append(f"{view}, epoch {epoch}: {text}\n  {what}")
        if played.wrong:
            return


def _some(rows: Counter) -> str:
    return f"{rows.total()}: {dict(list(rows.items())[:SHOWN])}"
