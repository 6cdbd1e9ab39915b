"""How a demo runs: its program on a carrier, its input fed in parts, its progress in sight."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.base.errors import PlanError
from headrace.base.time import SystemClock
from headrace.cli.output import note
from headrace.engine.engine import Engine
from headrace.engine.inprocess import InProcess
from headrace.engine.reset import reset
from headrace.engine.running import settings
from headrace.engine.status import describe
from headrace.engine.storage import Storage
from headrace.engine.topics import log_path
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.app import App

    Row = dict[str, Any]
    ByTopic = Callable[[list[Row]], dict[str, list[Row]]]

PARTS = 16
"""The input comes in so many parts: a watermark moves between epochs, so within one part nothing is late."""


class Carried(Protocol):
    """An app that runs, on Spark or here."""

    def await_caught_up(self) -> None:
        """Return when all that is in the topics has been processed."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what the app has done."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...


class InThisProcess:
    """An app carried without Spark, epoch by epoch as it is asked."""

    def __init__(self, app: App) -> None:
        self._engine = Engine(app.plan(), settings(app, shards=1))
        self._carrier = InProcess(self._engine)

    def await_caught_up(self) -> None:
        """Run epochs until another would change nothing."""
        while not self._engine.needs_no_epoch:
            self._carrier.step()

    def status(self) -> dict[str, Any]:
        """Return what the app has done."""
        return describe(self._engine.plan, self._engine.last, self._engine.inputs)

    def stop(self) -> None:
        """Let go of the storage."""
        self._carrier.close()
        self._engine.close()


class NotADemo(PlanError):
    """The storage holds something that no demo made."""

    condition = "NOT_A_DEMO"


def make_room(app: App) -> bool:
    """Forget what an earlier run of the demo left in its storage; return whether there was anything.

    Raises:
        NotADemo: the folder holds something else.
        StorageBusy: the demo runs there now.

    """
    owner = Storage(app.storage, app.name).about().get("app")
    if owner != app.name:
        if app.storage.exists() and any(app.storage.iterdir()):
            raise NotADemo(
                f"the folder {app.storage} is not empty, and no earlier run of this demo made it",
                hint="Name another one with --storage PATH.",
            )
        return False
    reset(app.plan(), app.storage)
    with Log(log_path(app.storage, app.topics)) as log:
        for topic in log.topics():
            log.delete_topic(topic)
    return True


def start(app: App, carrier: str) -> Carried:
    """Start the app."""
    if carrier != "spark":
        return InThisProcess(app)
    with waiting("starting Spark (a JVM, and Python workers beside it) …"):
        return _on_spark(app)


def _on_spark(app: App) -> Carried:
    running: Carried = app.start()
    return running


def part_size(total: int) -> int:
    """Return how many rows a part has."""
    return max(1, -(-total // PARTS))


def feed(app: App, running: Carried, *, rows: Iterable[Row], by_topic: ByTopic, total: int) -> float:
    """Append the rows to topics in parts, each processed before the next comes; return the seconds that it took."""
    clock = SystemClock()
    began = clock.monotonic()
    size = part_size(total)
    source, sent = iter(rows), 0
    what = next(iter(by_topic([])))
    with Log(log_path(app.storage, app.topics)) as log, progress(what, total) as tell:
        while part := list(islice(source, size)):
            for topic, records in by_topic(part).items():
                if records:
                    log.topic(topic).append(records)
            running.await_caught_up()
            sent += len(part)
            tell(sent, running.status())
    return clock.monotonic() - began


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say what is being waited for, with a spinner where a person looks."""
    if sys.stderr.isatty():
        with Console(stderr=True).status(text):
            yield
    else:
        note(text)
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """Return what tells how far the demo is: a bar where a person looks, lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda sent, now: note(f"{sent:>9,} of {total:,} {what}  {_facts(now)}")
        return
    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[facts]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, facts="")
        yield lambda sent, now: bar.update(task, completed=sent, facts=_facts(now))


def _facts(now: dict[str, Any]) -> str:
    steps = now["steps"].values()
    late = max((step["late"] for step in steps), default=0)
    mark = min((step["watermark"] for step in steps if step["watermark"] is not None), default=None)
    return f"epoch {now['epoch']}  watermark {'-' if mark is None else mark.date()}  late rows {late:,}"
