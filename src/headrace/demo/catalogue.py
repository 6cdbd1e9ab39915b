"""Which demos there are: for each its program, its input, its report and its check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.errors import PlanError, did_you_mean
from headrace.base.text import counted
from headrace.demo.auctions import bids
from headrace.demo.git import files, weeks
from headrace.demo.git.history import History, NoHistory, by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.app import App
    from headrace.demo.checks import Check
    from headrace.demo.reports import Report
    from headrace.log import Log

DEMOS = {
    "git": "the history of a git repository: weeks, corrected by late commits; the files and their owners",
    "auctions": "generated bids: the highest of each minute, although some arrive late",
}


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A program, its input, and how its output is reported and checked.

    `rows` yields the input, `total` rows called `unit`; `by_topic` splits some of them by the topic they go to.
    `look` names a view and a topic to look at after the run; `notes` are lines to print before it.
    """

    name: str
    program: Path
    by_topic: Callable[[list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]
    unit: str
    total: int
    rows: Callable[[], Iterable[dict[str, Any]]]
    report: Callable[[App, Log], Report]
    check: Callable[[App], list[Check]]
    look: tuple[str, str]
    notes: tuple[str, ...] = ()


class UnknownDemo(PlanError):
    """There is no demo of this name."""

    condition = "UNKNOWN_DEMO"


def find_demo(name: str, repo: Path | None = None) -> Demo:
    """Return a demo; `repo` is a folder in the git clone that the demo `git` shows, by default the current one.

    Raises:
        UnknownDemo: there is no demo of this name.

    """
    if name not in DEMOS:
        raise UnknownDemo(
            f'there is no demo "{name}"', detail=f"There are: {', '.join(DEMOS)}.", hint=did_you_mean(name, DEMOS)
        )
    return _git(repo if repo is not None else Path()) if name == "git" else _auctions()


def _git(repo: Path) -> Demo:
    """Return the demo on git's history, or the one on generated bids where there is none."""
    try:
        history = History.of(repo)
        total = history.count()
    except NoHistory as error:
        return _auctions(f"There is no git history to show: {error.what}. Here are generated auction bids instead.")
    notes = [f"The stream: the history of {history.root}, {counted(total, 'commit')} on its main line."]
    if history.shallow:
        notes.append("This clone is shallow: its first commit contains all that was before it.")
    return Demo(
        name="git",
        program=Path(__file__).with_name("git") / "program.py",
        by_topic=by_topic,
        unit="commits",
        total=total,
        rows=history.commits,
        report=_git_report,
        check=lambda app: [*weeks.check(app, history), *files.check(app, history)],
        look=("weekly", "weekly_changes"),
        notes=tuple(notes),
    )


def _git_report(app: App, log: Log) -> Iterator[Any]:
    yield from weeks.report(app, log)
    yield from files.report(app)


def _auctions(*notes: str) -> Demo:
    return Demo(
        name="auctions",
        program=Path(__file__).with_name("auctions") / "program.py",
        by_topic=lambda part: {"bids": part},
        unit="bids",
        total=bids.BIDS,
        rows=bids.bids,
        report=bids.report,
        check=bids.check,
        look=("highest", "highest_changes"),
        notes=notes,
    )
