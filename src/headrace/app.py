"""The front door: where the words meet the engine. Describing an app touches no Spark and no disk; this does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dsl import App as Words

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.engine.running import Running


class App(Words):
    """A program over streams: sources, steps and sinks, described first and run later.

    Everything the app owns is under `storage`. `topics` says where topics live: None is the embedded log under
    the storage, `"log:PATH"` another embedded log. `shards` is how many parts the state is cut into; it defaults
    to the cores that Spark has and is kept from the first start on.

    Raises:
        InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.
        InvalidPlan: `topics` or `shards` is not possible.

    """

    def start(self, spark: Any = None) -> Running:
        """Start the app on Spark, in the background: on `spark`, the active session, or a local one.

        It recovers what a crash may have left, then runs until `Running.stop()`.

        Raises:
            PlanError: the plan is not possible, or not the one whose state is kept.
            StorageBusy: another process runs it.

        """
        from headrace.engine.running import start

        return start(self, spark)

    def run(self) -> None:
        """Run the app on Spark until SIGINT or SIGTERM, which stop it at an epoch's end."""
        from headrace.engine.running import run

        run(self)

    def view(self, name: str) -> pa.Table:
        """Return a view's rows as of its last whole epoch; works while the app runs, from any process.

        Raises:
            HeadraceError: there is no such view.

        """
        from headrace.engine.running import read_view

        return read_view(self, name)

    def status(self) -> dict[str, Any]:
        """Return what the last epoch left behind: see `Running.status`; works while the app runs, from any process."""
        from headrace.engine.status import status

        return status(self)
