"""The queries: a file each, the same answer as verbs and as SQL.

A module has:

- `READS`: the streams that `verbs` is called with, in order.
- `verbs(...)`: the result, a `Stream` or a `Table`.
- `SQL`: the same as Spark SQL, for `app.sql` and for batch Spark, None where SQL has no word for it; `OPTIONS`: what
  `app.sql` is given besides it, and `relations(...)`: steps that it names.
- `side(app)`: what is declared besides the streams, and given to `verbs` too.
- `BY_ARRIVAL`: event time is the time at which the log stored a record.
- `SPARK`, `DUCKDB`: the text for batch Spark and for DuckDB, where `SQL` is none that they take.
- `STREAMING`: the text for Spark's own streaming, in append mode, or where there is a `KEY` in update mode; a module
  without it asks what Spark's streaming cannot express. `CLOSES`: its answer lacks windows that are open at the end.
- `WAITS`: so does ours, which lacks what is not final when the events end; the runner compares no answers then.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
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
    def forms(self) -> tuple[Form, ...]:
        """How it is written."""
        return ("verbs",) if self._module.SQL is None else ("verbs", "sql")

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
        return str(self._optional("SPARK", self._module.SQL))

    @property
    def duckdb(self) -> str:
        """The text for DuckDB, with the macros of `checking.MACROS`."""
        return str(self._optional("DUCKDB", self._module.SQL))

    @property
    def streaming(self) -> str | None:
        """The text for Spark's own streaming; None if it cannot express the query."""
        text: str | None = self._optional("STREAMING", None)
        return text

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of Spark's update mode; none: it appends."""
        return tuple(self._optional("KEY", ()))

    @property
    def closes(self) -> bool:
        """Whether Spark's streaming gives a window when it closes, so not those that are open at the end."""
        return bool(self._optional("CLOSES", default=False))

    @property
    def waits(self) -> bool:
        """Whether our answer lacks what is not final when the events end."""
        return bool(self._optional("WAITS", default=False))

    def result(self, app: App, form: Form = "verbs") -> Stream | Table:
        """Add the query to an app, whose streams it declares, and return its result."""
        streams = {
            name: app.stream(name, schema, **self._timing) for name, schema in SCHEMAS.items() if name in self.reads
        }
        given = [streams[name] for name in self.reads]
        side = self._optional("side", lambda _: {})(app)
        if form == "sql":
            relations = self._optional("relations", lambda *_: {})(*given)
            return app.sql(self._module.SQL, **self._optional("OPTIONS", {}), **relations)
        made: Stream | Table = self._module.verbs(*given, **side)
        return made

    @property
    def _timing(self) -> dict[str, str]:
        by_arrival = self._optional("BY_ARRIVAL", default=False)
        return {} if by_arrival else {"event_time": "dateTime", "out_of_order": OUT_OF_ORDER}

    def _optional(self, name: str, default: Any) -> Any:
        return getattr(self._module, name, default)

    def app(self, form: Form = "verbs", **options: Any) -> tuple[App, Stream | Table]:
        """Return an app with the query alone, and its result, which goes nowhere yet."""
        app = hr.App("nexmark", **options)
        return app, self.result(app, form)


QUERIES = {name: Query(name) for name in NAMES}
