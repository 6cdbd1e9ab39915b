"""The front door: `App` with the methods that run it. Describing an app touches no Spark and no disk; running does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headrace.base.loading import refuse_while_loading
from headrace.dsl import App as AppDescription

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.operation.restart import Restart
    from headrace.engine.operation.running import Running


class App(AppDescription):
    """A program over streams: sources, steps and sinks, described first and run later.

    Args:
        name: what the app is called: `[A-Za-z_][A-Za-z0-9_]*`.
        storage: the folder of everything that the app owns, `.headrace` by default.
        topics: where topics are: None is the embedded log in the storage, `"log:PATH"` another embedded log,
            `"kafka://host:port"` a Kafka cluster.
        views: where views are served from: None is a SQLite file in the storage, `"postgresql://user@host/database"`
            tables of a database.
        shards: how many parts the state is split into; by default the number of Spark's cores at the first start.
            It cannot change later.

    Raises:
        InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.
        InvalidPlan: `topics`, `views` or `shards` is not possible.

    """

    def _bounded(self, values: Any, path: str | Path | None, schema: str | pa.Schema | None) -> Any:
        from headrace.connect.bounded import bounded

        return bounded(values, path, schema)

    def _constants(self, sql: str, schema: pa.Schema) -> Any:
        from headrace.connect.bounded import bounded
        from headrace.kernels.query import computed

        return bounded(computed(sql, schema), None, schema)

    def start(self, spark: Any = None, *, carrier: Literal["spark", "in-process"] = "spark") -> Running:
        """Start the app in the background: on Spark (`spark`, the active session, or a local one), or in this process.

        It recovers from an earlier crash, then runs until `Running.stop()`. A failure ends it, and is raised by
        `Running.await_caught_up`; only `run` starts an app again.

        Raises:
            PlanError: the plan is not possible, or does not fit the state in the storage.
            StorageBusy: another process runs the app.

        """
        from headrace.engine.operation.running import start

        refuse_while_loading("app.start()")
        return start(self, spark, carrier=carrier)

    def run(
        self,
        *,
        carrier: Literal["spark", "in-process"] = "spark",
        restart: Restart | str | None = None,
        verify: bool = False,
    ) -> None:
        """Run the app until SIGINT or SIGTERM, which stop it at the end of an epoch.

        A failure that may pass (a worker that did not start in time, a lost JVM, a full disk, a locked database, a sink
        or source that is down) is logged, and the app is started again; any other ends it.

        Args:
            carrier: "spark", or "in-process": without Spark and Java, in this process, on its cores. Both go on from
                the same storage.
            restart: `hr.Restart(...)`, `"5 within 10 minutes"` or `"never"`; by default `hr.Restart()`.
            verify: whether everything that the app owns is verified before the start, as `headrace verify --repair`
                does: damaged views are built anew.

        Raises:
            PlanError: the plan is not possible, or does not fit the state in the storage.
            StorageBusy: another process runs the app.
            Fenced: another process took the app over.
            AppDamaged: `verify` found something that is not as it was written.
            HeadraceError: it failed, and trying again does not help or was tried often enough.

        """
        from headrace.engine.operation.running import run
        from headrace.engine.recovery.verify import check

        refuse_while_loading("app.run()")
        if verify:
            check(self)
        run(self, carrier=carrier, restart=restart)

    def view(self, name: str) -> pa.Table:
        """Return a view's rows as of its last complete epoch; works while the app runs, from any process.

        Before the first epoch there are none.

        Raises:
            HeadraceError: there is no such view, and the app declares none.

        """
        from headrace.engine.operation.running import read_view

        return read_view(self, name)

    def status(self) -> dict[str, Any]:
        """Return the status as of the last epoch: see `Running.status`; works while the app runs, from any process."""
        from headrace.engine.operation.status import status

        return status(self)
