"""The queries: a file each, the same answer as verbs and as SQL.

A module has:

- `READS`: the streams that `verbs` is called with, in order.
- `verbs(...)`: the result, a `Stream` or a `Table`.
- `SQL`: the same as Spark SQL, for `app.sql` and for batch Spark; `OPTIONS`: what `app.sql` is given besides it, and
  `relations(...)`: steps that it names.
- `SPARK`, `DUCKDB`: the text for batch Spark and for DuckDB, where `SQL` is none that they take.
- `STREAMING`: the text for Spark's own streaming, in append mode, or where there is a `KEY` in update mode; a module
  without it asks what Spark's streaming cannot express. `CLOSES`: its answer lacks windows that are open at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import headrace as hr
from bench.nexmark.generator import OUT_OF_ORDER, SCHEMAS

if TYPE_CHECKING:
    from headrace import App, Stream, Table

NAMES = tuple(f"q{number}" for number in range(23))
Form = Literal["verbs", "sql"]


@dataclass(frozen=True)
class Query:
    """One query by its name."""

    name: str

    @property
    def _module(self) -> Any:
        return import_module(f"bench.nexmark.queries.{self.name}")

    @property
    def exists(self) -> bool:
        """Whether it is written."""
        return find_spec(f"bench.nexmark.queries.{self.name}") is not None

    @property
    def about(self) -> str:
        """What it asks, in a line."""
        return str(self._module.__doc__).splitlines()[0]

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(self._module.READS)

    @property
    def spark(self) -> str:
        """The text for batch Spark."""
        return str(getattr(self._module, "SPARK", self._module.SQL))

    @property
    def duckdb(self) -> str:
        """The text for DuckDB, with the macros of `checking.MACROS`."""
        return str(getattr(self._module, "DUCKDB", self._module.SQL))

    @property
    def streaming(self) -> str | None:
        """The text for Spark's own streaming; None if it cannot express the query."""
        text: str | None = getattr(self._module, "STREAMING", None)
        return text

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of Spark's update mode; none: it appends."""
        return tuple(getattr(self._module, "KEY", ()))

    @property
    def closes(self) -> bool:
        """Whether Spark's streaming gives a window when it closes, so not those that are open at the end."""
        return bool(getattr(self._module, "CLOSES", False))

    def result(self, app: App, form: Form = "verbs") -> Stream | Table:
        """Add the query to an app, whose streams it declares, and return its result."""
        streams = {
            name: app.stream(name, schema, event_time="dateTime", out_of_order=OUT_OF_ORDER)
            for name, schema in SCHEMAS.items()
            if name in self.reads
        }
        if form == "sql":
            relations = getattr(self._module, "relations", lambda *_: {})(*map(streams.get, self.reads))
            return app.sql(self._module.SQL, **getattr(self._module, "OPTIONS", {}), **relations)
        made: Stream | Table = self._module.verbs(*map(streams.get, self.reads))
        return made

    def app(self, form: Form = "verbs", **options: Any) -> tuple[App, Stream | Table]:
        """Return an app with the query alone, and its result, which goes nowhere yet."""
        app = hr.App("nexmark", **options)
        return app, self.result(app, form)


QUERIES = {name: Query(name) for name in NAMES}
