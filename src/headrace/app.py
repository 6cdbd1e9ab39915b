"""The front door: `App` with the methods that run it. Describing an app touches no Spark and no disk; running does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dsl import App as AppDescription

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.engine.running import Running


class App(AppDescription):
    """A program over streams: sources, steps and sinks, described first and run later.

    Args:
        name: what the app is called: `[A-Za-z_][A-Za-z0-9_]*`.
        storage: the folder of everything that the app owns, `.headrace` by default.
        topics: where topics are: None is the embedded log in the storage, `"log:PATH"` another embedded log.
        shards: how many parts the state is split into; by default the number of Spark's cores at the first start.
            It cannot change later.

    Raises:
        InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.
        InvalidPlan: `topics` or `shards` is not possible.

    """

    def start(self, spark: Any = None) -> Running:
        """Start the app on Spark, in the background: on `spark`, the active session, or a local one.

        It recovers from an earlier crash, then runs until `Running.stop()`.

        Raises:
            PlanError: the plan is not possible, or does not fit the state in the storage.
            StorageBusy: another process runs the app.

        """
        from headrace.engine.running import start

        return start(self, spark)

    def run(self) -> None:
        """Run the app on Spark until SIGINT or SIGTERM, which stop it at the end of an epoch."""
        from headrace.engine.running import run

        run(self)

    def view(self, name: str) -> pa.Table:
        """Return a view's rows as of its last complete epoch; works while the app runs, from any process.

        Raises:
            HeadraceError: there is no such view.

        """
        from headrace.engine.running import read_view

        return read_view(self, name)

    def status(self) -> dict[str, Any]:
        """Return the status as of the last epoch: see `Running.status`; works while the app runs, from any process."""
        from headrace.engine.status import status

        return status(self)
