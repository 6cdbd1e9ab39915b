"""What carries a demo's app: Spark, or this process; and how an earlier run is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.errors import PlanError
from headrace.connect.embedded import log_path
from headrace.engine.inprocess import InProcess
from headrace.engine.operation.running import settings
from headrace.engine.operation.status import describe
from headrace.engine.program.reset import reset
from headrace.engine.recovery.opening import open_engine
from headrace.engine.storage import Storage
from headrace.log import Log

if TYPE_CHECKING:
    from headrace.app import App


class Carried(Protocol):
    """An app that runs, on Spark or in this process."""

    def await_caught_up(self) -> None:
        """Return when all that is in the topics has been processed."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what the app has done: see `Running.status`."""
        ...

    def stop(self) -> None:
        """Stop the app and release its storage."""
        ...


class InThisProcess:
    """An app carried without Spark: it runs epochs when it is told to catch up."""

    def __init__(self, app: App) -> None:
        self._engine = open_engine(app.plan(), settings(app, shards=1))
        self._carrier = InProcess(self._engine)

    def await_caught_up(self) -> None:
        """Run epochs until another would change nothing."""
        while not self._engine.needs_no_epoch:
            self._carrier.step()

    def status(self) -> dict[str, Any]:
        """Return what the app has done: see `Running.status`."""
        return describe(self._engine.plan, self._engine.last, self._engine.inputs)

    def stop(self) -> None:
        """Stop the app and release its storage."""
        self._carrier.close()
        self._engine.close()


class NotADemo(PlanError):
    """The storage holds something that no demo wrote."""

    condition = "NOT_A_DEMO"


def start(app: App, carrier: str) -> Carried:
    """Start the app on the carrier `"spark"` or `"in-process"`."""
    if carrier != "spark":
        return InThisProcess(app)
    running: Carried = app.start()
    return running


def open_log(app: App) -> Log:
    """Return the log that holds the app's topics."""
    return Log(log_path(app.storage, app.topics))


def forget_earlier_run(app: App) -> bool:
    """Remove what an earlier run of the demo left in its storage; return whether there was anything.

    Raises:
        NotADemo: the folder holds something else.
        StorageBusy: the demo is running there.

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
    with open_log(app) as log:
        for topic in log.topics():
            log.delete_topic(topic)
    return True
