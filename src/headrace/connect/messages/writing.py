"""Rows become messages of brokers: what the sinks of all brokers share.

A message has an id, `<writer>/<epoch>/<n>`, that is the same when its epoch is published again: after a crash, or a
failure in its middle. So a broker that drops duplicates, or a receiver that remembers ids (our own feeds do), has each
message exactly once; any other has it at least once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypedDict, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.broker_errors import BrokerFailed
from headrace.base.errors import InvalidPlan, UnknownColumn, did_you_mean
from headrace.connect.encoding import present_alone
from headrace.connect.format import HEADERS, VALUE
from headrace.connect.formats import format_named, format_of
from headrace.connect.formats.json_text import text_of
from headrace.connect.sink import Form, Sink, SinkWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.format import Format

ID_HEADER, KEY_HEADER = "headrace-id", "headrace-key"
"""Headers for the id and the key of a message, where a broker has no place for them."""
MOST_ID = 96
"""A writer with a longer name is named by a hash of it in ids: some brokers take ids of 128 characters at most."""
TOGETHER = 1_000
_COLUMN = re.compile(r"\{([^{}]*)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Outgoing(NamedTuple):
    """A message to send.

    `body`: empty where a row of a table is deleted. `key`: that of the row, None where it has none. `address`: where
    to, as the sink's template says for the row. `time`: the event time in microseconds.
    """

    id: str
    body: bytes
    key: bytes | None
    address: str
    headers: Mapping[str, str]
    time: int | None


class WritingOptions(TypedDict, total=False):
    """The options that the sinks of all brokers have.

    `format`: how bodies are written, json by default. `key`: the columns of a message's key; a table has its own.
    `key_format`: how keys are written, text by default. `headers`: by name the column whose text is the header.
    """

    format: str | Format
    key: str | Sequence[str]
    key_format: str | Format
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How rows become messages; `writing` checks it. `address` is a template: `{column}` is the column's text."""

    format: Format
    key: tuple[str, ...]
    key_format: Format
    headers: tuple[tuple[str, str], ...]
    address: str


def writing(address: str, options: WritingOptions) -> Writing:
    """Return how rows become messages.

    Raises:
        InvalidPlan: an option is not known.

    """
    names = WritingOptions.__annotations__
    for name in options:
        if name not in names:
            raise InvalidPlan(f"{name}= is not known", hint=did_you_mean(name, names))
    key = options.get("key") or ()
    return Writing(
        format=format_of(options.get("format"), "json") or format_named("json"),
        key=(key,) if isinstance(key, str) else tuple(key),
        key_format=format_of(options.get("key_format"), "text") or format_named("text"),
        headers=tuple(dict(options.get("headers") or {}).items()),
        address=address,
    )


def no_fault(point: str) -> None:
    """Do not crash."""
    del point


@dataclass(frozen=True, kw_only=True)
class MessageSink(Sink):
    """Messages to a broker: a stream's rows, or a table's changes by its key.

    A subclass adds where they go, and implements `open`. `fault`: called where a test may crash: between messages.
    """

    how: Writing
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    key: tuple[str, ...] = ()
    is_table: bool = False
    fault: Callable[[str], None] = no_fault

    @property
    def form(self) -> Form:
        """One change a key for a table, else rows."""
        return "changelog" if self.is_table else "rows"

    @property
    def where(self) -> str:
        """What people call it, without secrets."""
        raise NotImplementedError

    def in_address(self, text: str) -> str:
        """Return a column's text as it stands in an address."""
        return text

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: it is a table without a key, or with another one than `key`; or columns are private.
            UnknownColumn: the rows have no column that `key`, `headers` or the address names.

        """
        if sealed:
            raise InvalidPlan(
                f"private columns cannot be sent to {self.where}: {', '.join(sorted(sealed))}",
                detail="Who receives a message keeps it, so nobody could forget a subject there.",
                hint="Leave them out with .select(…).",
            )
        if is_table and not key:
            raise InvalidPlan(
                f"a table without a key cannot be sent to {self.where}",
                hint="Keep the key's columns in .select(…), or send what happened: .changes().to(…).",
            )
        if is_table and self.how.key and self.how.key != key:
            raise InvalidPlan(f"the messages of a table have its key, {', '.join(key or ())}", hint="Leave key= out.")
        named = [*self.how.key, *(name for _, name in self.how.headers), *_COLUMN.findall(self.how.address)]
        for name in named:
            if name not in schema.names:
                raise UnknownColumn(name, step=f"to {self.where}", columns=schema.names)
            if is_table and name not in (key or ()):
                raise InvalidPlan(
                    f'"{name}" is not in the key of the table, and a row that is deleted has its key alone',
                    hint=f"Use columns of the key: {', '.join(key or ())}.",
                )
        return replace(self, columns=schema, key=(key or ()) if is_table else self.how.key, is_table=is_table)


_Sink = TypeVar("_Sink", bound=MessageSink)


class MessageWriter(SinkWriter, Generic[_Sink]):
    """Sends epochs to a broker that knows nothing of them, and begins anew after a failure.

    A subclass connects when it has something to send, and implements `send` and `close`; and `drop`, where a connection
    that failed is treated in another way.
    """

    def __init__(self, sink: _Sink, writer: str) -> None:
        self.sink, self.writer = sink, writer

    def last_epoch(self) -> int | None:
        """Return None: the broker cannot tell."""
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send an epoch's rows; the broker has them when it returns.

        Raises:
            Unavailable: it does not answer, or does not take them now.
            LoginRefused, AccessRefused: user, password or rights are wrong.
            QueueMissing: what is sent to is not there.
            MessageTooLarge: it does not take a message of this size.
            BrokerFailed: it refuses for another reason, which does not pass by itself.

        """
        try:
            self.send(epoch, outgoing(self.sink, self.writer, epoch, rows))
        except BaseException:
            self.drop()
            raise

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages; raises as `publish` does."""
        raise NotImplementedError

    def drop(self) -> None:
        """Close a connection that failed."""
        self.close()


class RestingWriter(MessageWriter[_Sink]):
    """One whose connection nobody keeps alive between epochs: it is opened anew after `IDLE_SECONDS` without any."""

    IDLE_SECONDS = 5.0

    def __init__(self, sink: _Sink, writer: str, clock: Clock) -> None:
        super().__init__(sink, writer)
        self.clock = clock
        self._used = 0.0

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send an epoch's rows, as `MessageWriter` does."""
        if self.clock.monotonic() - self._used > self.IDLE_SECONDS:
            self.close()
        super().publish(epoch, rows)
        self._used = self.clock.monotonic()


def outgoing(
    sink: MessageSink, writer: str, epoch: int, rows: Iterator[pa.RecordBatch]
) -> Iterator[Sequence[Outgoing]]:
    """Yield the rows of an epoch as messages, at most `TOGETHER` at a time, in order.

    Args:
        sink: how they are written.
        writer: the name of the writer, as `Sink.open` got it.
        epoch: the epoch.
        rows: as `SinkWriter.publish` got them.

    """
    stem, number = _stem(writer), 0
    for batch in rows:
        for at in range(0, batch.num_rows, TOGETHER):
            some = batch.slice(at, TOGETHER)
            yield _messages(sink, f"{stem}/{epoch}", number, some)
            sink.fault("in_epoch")
            number += some.num_rows


def _messages(sink: MessageSink, stem: str, first: int, rows: pa.RecordBatch) -> list[Outgoing]:
    how, count = sink.how, rows.num_rows
    encoded = present_alone(rows, sink.columns.names, how.format.encode_records)
    bodies = encoded.column(VALUE).cast(pa.binary()).to_pylist()
    keys = how.key_format.encode(rows.select(list(sink.key))).cast(pa.binary()).to_pylist() if sink.key else []
    own = encoded.column(HEADERS).to_pylist() if HEADERS in encoded.schema.names else [None] * count
    named = {name: text_of(rows.column(column)).to_pylist() for name, column in how.headers}
    to = addresses(how.address, rows, sink.in_address)
    times = rows.column("_time").to_pylist() if "_time" in rows.schema.names else [None] * count
    return [
        Outgoing(
            id=f"{stem}/{first + at}",
            body=bodies[at] or b"",
            key=keys[at] if keys else None,
            address=to[at],
            headers={each["name"]: (each["value"] or b"").decode() for each in own[at] or ()}
            | {name: texts[at] for name, texts in named.items() if texts[at] is not None},
            time=times[at],
        )
        for at in range(count)
    ]


def one_line(text: str) -> str:
    """Return a text as a header can have it that ends with its line: control characters are spaces."""
    return _CONTROL.sub(" ", text)


def key_header(message: Outgoing, where: str, line: Callable[[str], str] = one_line) -> dict[str, str]:
    """Return the header with the key of a message, as `line` makes it one that can be sent; none where it has no key.

    Raises:
        BrokerFailed: it is another text there, and the message says that its row is deleted: it would be another row.

    """
    if message.key is None:
        return {}
    found = line(message.key.decode(errors="replace"))
    if not message.body and found.encode() != message.key:
        raise BrokerFailed(
            f"the row with the key {message.key!r} cannot be deleted in {where}: no header can have this key",
            hint='key_format="json" writes line ends so that a header can have them.',
        )
    return {KEY_HEADER: found}


def columns_in(template: str) -> list[str]:
    """Return the columns that a template names."""
    return _COLUMN.findall(template)


def addresses(template: str, rows: pa.RecordBatch, written: Callable[[str], str] = str) -> list[str]:
    """Return a template for each row, with the texts of its columns as `written` has them."""
    names = columns_in(template)
    if not names:
        return [template] * rows.num_rows
    texts = {name: pc.fill_null(text_of(rows.column(name)), "").to_pylist() for name in names}
    return [_COLUMN.sub(lambda found, at=at: written(texts[found[1]][at]), template) for at in range(rows.num_rows)]  # type: ignore[misc]


def _stem(writer: str) -> str:
    return writer if len(writer) <= MOST_ID else blake2b(writer.encode(), digest_size=16).hexdigest()
