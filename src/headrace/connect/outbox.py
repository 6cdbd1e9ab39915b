"""The outbox: events that are written in the transaction of the business, and become records of topics by capture.

from headrace.connect import outbox, postgres

orders = app.stream("orders", event_time="created",
                    source=outbox.events(postgres.table(url, "outbox"), "order"))

A program writes a row into the table in its own transaction (`write`, or the INSERT of `docs/events.md`). Capture lands
it in the topic of its aggregate type, and deletes it when it is durable there. A transaction that is rolled back leaves
no event; an event that is landed is landed once.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arguments import a_text
from headrace.base.blame import OutsideError
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.capture.source import DELETED
from headrace.connect.feed import Declared, Feed, Progress, Request, SharedFeed, SharedLanding
from headrace.connect.open_topic import OpenTopic

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.connect.feed import DeadRecord
    from headrace.log.rows import Rows

EVENTS: pa.Schema = as_schema(
    "id string not null, aggregate_type string not null, aggregate_id string not null, type string not null, "
    "payload string, created timestamp"
)
"""The columns of a topic of events; its key is `aggregate_id`."""
_NUMBER, _TYPE, _KEY = "number", "aggregate_type", "aggregate_id"
_TABLE = "outbox"
_COLUMNS = ("id", "aggregate_type", "aggregate_id", "type", "payload")
DDL = {
    "postgresql": (
        "CREATE TABLE {table} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, "
        "aggregate_type text NOT NULL, aggregate_id text NOT NULL, type text NOT NULL, payload jsonb, "
        "created timestamptz NOT NULL DEFAULT clock_timestamp())"
    ),
    "mysql": (
        "CREATE TABLE {table} (number bigint AUTO_INCREMENT PRIMARY KEY, id varchar(255) NOT NULL UNIQUE, "
        "aggregate_type varchar(255) NOT NULL, aggregate_id varchar(255) NOT NULL, type varchar(255) NOT NULL, "
        "payload longtext, created timestamp(6) NOT NULL DEFAULT current_timestamp(6)) ENGINE = InnoDB"
    ),
    "sqlite": (
        "CREATE TABLE {table} (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
        "aggregate_type TEXT NOT NULL, aggregate_id TEXT NOT NULL, type TEXT NOT NULL, payload TEXT, "
        "created DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')))"
    ),
}
"""The statement that creates the table, by database."""


class OutboxTable(Feed, Protocol):
    """A captured table whose rows can be deleted: those of `postgres.table`, `mysql.table` and `sqlite.table`."""

    def apart(self, reader: str) -> Self:
        """Return the same table with a reader of its own, where the database keeps changes for readers by name."""
        ...

    def delete(self, column: str, values: Sequence[int]) -> None:
        """Delete the rows that have one of some values.

        Raises:
            Unavailable: the database does not answer.

        """
        ...


class TypeWithoutTopic(OutsideError):
    """An event is of an aggregate type that no topic takes."""

    condition = "TYPE_WITHOUT_TOPIC"

    def __init__(self, types: Sequence[str], table: str) -> None:
        super().__init__(
            f"no topic takes events of the aggregate type {', '.join(types)}, which are in {table}",
            detail="They stay there, and nothing after them was landed.",
            hint='Add app.stream("…", source=outbox.events(source, "TYPE")); without a type it takes all others.',
        )


def events(source: OutboxTable, aggregate_type: str | None = None) -> Outbox:
    """Return a feed that lands the events of an outbox table, exactly once, and then deletes their rows.

    Topics of one table share a reader: what a transaction wrote for several of them is read together. Events of an
    aggregate keep their order, by the column `number` at first and then by commit. Do not update rows: a changed row is
    an event again.

    Args:
        source: the table, of `postgres.table`, `mysql.table` or `sqlite.table`; its reader is one of its own.
        aggregate_type: takes the events of this type; None: all that no other topic of the app takes.

    Raises:
        InvalidPlan: the source is no table whose rows can be deleted.

    """
    if not callable(getattr(source, "apart", None)) or not callable(getattr(source, "delete", None)):
        raise InvalidPlan(
            f"{source!r} is no table that can be an outbox", hint="For example postgres.table(url, 'outbox')."
        )
    return Outbox(source=source.apart(_TABLE), aggregate_type=aggregate_type)


def ddl(database: str, *, table: str = _TABLE) -> str:
    """Return the statement that creates the table: for "postgresql", "mysql" or "sqlite".

    Raises:
        InvalidArgument: the database is none of these.

    """
    if database not in DDL:
        raise InvalidArgument(f"database={database!r} is not known", hint=f"Known are: {', '.join(DDL)}.")
    return DDL[database].format(table=_quoted(table, database))


def write(
    connection: Any,
    *,
    aggregate_type: str,
    aggregate_id: str,
    type: str,  # noqa: A002 -- the event's word
    payload: Any = None,
    id: str | None = None,  # noqa: A002 -- the event's word
    table: str = _TABLE,
) -> str:
    """Write an event in the transaction of a connection, and return its id. Nothing is committed here.

    Args:
        connection: of psycopg, sqlite3 or PyMySQL; or a connection or session of SQLAlchemy.
        aggregate_type: which topic takes it.
        aggregate_id: the key of its record: events of one are in order.
        type: what has happened.
        payload: what JSON can hold.
        id: an id by which readers recognize a repetition; one is drawn if it is not given. It is unique in the table.
        table: the table, with its schema if need be.

    Raises:
        InvalidArgument: something is of the wrong type, or no JSON.

    """
    try:
        text = None if payload is None else json.dumps(payload, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"payload={payload!r} is no JSON: {error}") from error
    named = {"aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "type": type}
    row = [id or str(uuid.uuid4()), *(a_text(value, name) for name, value in named.items()), text]
    kind, name = _kind(connection)
    into = f"INSERT INTO {_quoted(table, name)} ({', '.join(_COLUMNS)}) VALUES"
    if kind == "sqlalchemy":
        from sqlalchemy import text as statement

        values = ", ".join(f":{column}" for column in _COLUMNS)
        connection.execute(statement(f"{into} ({values})"), dict(zip(_COLUMNS, row, strict=True)))
    else:
        cursor = connection.cursor()
        cursor.execute(f"{into} ({', '.join(['?' if kind == 'sqlite3' else '%s'] * len(row))})", row)
        cursor.close()
    return str(row[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox(SharedFeed):
    """The events of an outbox table; `events` creates it."""

    source: OutboxTable
    aggregate_type: str | None

    @property
    def identity(self) -> str:
        """The table and the aggregate type."""
        return f"{self.source.identity}/{'*' if self.aggregate_type is None else self.aggregate_type}"

    @property
    def reader_group(self) -> str:  # type: ignore[override]
        """The table: one process reads it."""
        return f"outbox/{self.source.identity}"

    def declares(self) -> Declared:
        """Return the columns of the topic, and its key."""
        return Declared(EVENTS, (_KEY,))

    def install(self) -> str | None:
        """Make what the table's capture needs."""
        return self.source.install()

    def remove(self) -> str | None:
        """Remove what the table's capture made."""
        return self.source.remove()

    def run_together(self, feeds: Mapping[str, Feed], landing: SharedLanding, stop: threading.Event) -> None:
        """Land events until `stop` is set.

        Raises:
            TypeWithoutTopic: no topic takes an event.
            HeadraceError: what the capture of the table raises.

        """
        types = {topic: feed.aggregate_type for topic, feed in feeds.items() if isinstance(feed, Outbox)}
        declared = self.source.declares()
        wanted = {_NUMBER, *EVENTS.names}
        if declared is None or not wanted <= set(declared.schema.names):
            raise InvalidPlan(
                f"{self.source.identity} is no outbox: it has not the columns {', '.join(sorted(wanted))}",
                hint='outbox.ddl("postgresql") returns the statement that creates one.',
            )
        routing = _Routing(landing, self.source, types, declared.schema)
        routing.delete_landed()
        self.source.run_together({_TABLE: self.source}, routing, stop)


class _Routing(SharedLanding):
    """The outbox table as its capture sees it: rows go to the topics of their types, and are deleted then.

    The position has the numbers of the rows that were landed last: if a crash prevents their deletion, it is repeated.
    """

    def __init__(
        self, landing: SharedLanding, source: OutboxTable, types: Mapping[str, str | None], schema: pa.Schema
    ) -> None:
        self._landing = landing
        self._source = source
        self._types = types
        self._schema = schema

    def schema(self, topic: str) -> pa.Schema:
        del topic
        return self._schema

    def position(self) -> bytes | None:
        stored = self._stored()["position"]
        return None if stored is None else bytes.fromhex(stored)

    def append(
        self,
        rows: Mapping[str, Rows],
        *,
        position: bytes | None = None,
        dead: Mapping[str, Sequence[DeadRecord]] | None = None,
    ) -> None:
        del dead  # captures have none
        written = pa.concat_tables([self._schema_of(each) for each in rows.values()]) if rows else None
        if written is not None and DELETED in written.column_names:
            written = written.filter(pc.invert(written.column(DELETED)))
        landed = [] if written is None else written.column(_NUMBER).to_pylist()
        at = self.position() if position is None else position
        stored = {"position": None if at is None else at.hex(), "landed": landed}
        routed = {} if written is None else self._routed(written)
        self._landing.append(routed, position=json.dumps(stored).encode())
        self._source.delete(_NUMBER, landed)

    def delete_landed(self) -> None:
        """Delete the rows that were landed last."""
        self._source.delete(_NUMBER, self._stored()["landed"])

    def evolve(self, topic: str, schema: pa.Schema) -> None:
        """Leave the topics as they are: their columns are those of events."""

    def opened(self, topic: str) -> OpenTopic:
        del topic
        return _Nothing(self._schema)

    def requests(self) -> Sequence[Request]:
        """Return one request of all: what is still in the table was not landed."""
        return [Request(each.id, _TABLE) for each in self._mine()[:1]]

    def answered(self, request: Request) -> None:
        del request
        for each in self._mine():
            self._landing.answered(each)

    def report(self, **progress: Unpack[Progress]) -> None:
        self._landing.report(**progress)

    def has_room(self) -> bool:
        return self._landing.has_room()

    def close(self) -> None:
        """Do nothing: whoever opened the landing closes it."""

    def _mine(self) -> list[Request]:
        return [each for each in self._landing.requests() if each.topic in self._types]

    def _stored(self) -> dict[str, Any]:
        stored = self._landing.position()
        found: dict[str, Any] = {"position": None, "landed": []} if stored is None else json.loads(stored)
        return found

    def _schema_of(self, rows: Rows) -> pa.Table:
        return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows

    def _routed(self, rows: pa.Table) -> dict[str, pa.Table]:
        """Return the events of each topic."""
        known = [each for each in self._types.values() if each is not None]
        other = pc.invert(pc.is_in(rows.column(_TYPE), pa.array(known, pa.string())))
        if None not in self._types.values() and pc.any(other).as_py():
            unknown = rows.column(_TYPE).filter(other).unique().to_pylist()
            raise TypeWithoutTopic(sorted(unknown), self._source.identity)
        found = {
            topic: rows.filter(other if kind is None else pc.equal(rows.column(_TYPE), kind))
            for topic, kind in self._types.items()
        }
        return {topic: _as_events(each) for topic, each in found.items() if each.num_rows}


class _Nothing(OpenTopic):
    """A topic without records."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def cleanup(self) -> str:
        return "delete"

    def append(self, rows: Rows, *, partition: int | None = None) -> object:
        raise NotImplementedError

    def start_offsets(self) -> Mapping[int, int]:
        return {}

    def end_offsets(self) -> Mapping[int, int]:
        return {}

    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        del partition, start, end, columns
        return iter(())


def _as_events(rows: pa.Table) -> pa.Table:
    return pa.table([rows.column(field.name).cast(field.type) for field in EVENTS], schema=EVENTS)


def _kind(connection: Any) -> tuple[str, str]:
    """Return whose connection it is, and the database."""
    module = type(connection).__module__.partition(".")[0]
    if module == "sqlalchemy":
        bind = connection.get_bind() if callable(getattr(connection, "get_bind", None)) else connection
        found = {"mariadb": "mysql"}.get(bind.dialect.name, bind.dialect.name)
        return module, str(found)
    databases = {"psycopg": "postgresql", "psycopg2": "postgresql", "sqlite3": "sqlite", "pymysql": "mysql"}
    if module in databases:
        return module, databases[module]
    raise InvalidArgument(
        f"{connection!r} is no connection that is known here",
        hint="Give one of psycopg, sqlite3, PyMySQL or SQLAlchemy; or write the row by the INSERT of docs/events.md.",
    )


def _quoted(table: str, database: str) -> str:
    mark = "`" if database == "mysql" else '"'
    return ".".join(f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in a_text(table, "table").split("."))
