"""Messages of brokers become rows of a topic: what the feeds of all brokers share.

A feed receives messages, gives them to `MessageLanding.land`, and acknowledges them when that returns: then they are
durable, with the ids that they are recognised by. What cannot be decoded is durable as a dead letter.

A broker delivers a message again if it was not acknowledged: after a crash, a lost connection, a time-out. The ids of
the last `remember` messages are stored with each append, so a message that comes again within that number is dropped
(`repeated` in `status`). So a message with an id is landed exactly once, if its repetition is no later than that. A
message without an id is landed at least once.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack, cast

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidArgument, InvalidPlan, did_you_mean
from headrace.connect.feed import DeadRecord
from headrace.connect.format import HEADERS, HEADERS_TYPE, KEY, VALUE
from headrace.connect.formats import format_named, format_of
from headrace.connect.undecoded import Undecoded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.connect.feed import Landing, Progress
    from headrace.connect.format import Format

REMEMBERED, MOST_REMEMBERED = 10_000, 20_000
"""How many ids are remembered, and how many can be: an append stores 16 bytes for each."""
SHOWN = 200_000
"""So many characters of a message that cannot be decoded are kept in its dead letter."""
HEADER = "header:"
"""The metadata `header:NAME` is the header with that name."""
_ID_BYTES = 16
_HEAD = struct.Struct(">BI")
_VERSION = 1
NO_METADATA: Mapping[str, object] = MappingProxyType({})


class Message(NamedTuple):
    """A message as a feed received it.

    `body`: None or empty deletes the row with the message's key, where the feed has `key=`. `id`: what recognises the
    message when it is delivered again. `headers`: those of its sender. `about`: what the broker says of it, by the
    names that `metadata=` of the connector knows.
    """

    body: bytes | None
    id: str | None = None
    key: bytes | None = None
    headers: Mapping[str, object] = NO_METADATA
    about: Mapping[str, object] = NO_METADATA

    def value(self, what: str) -> object:
        """Return a piece of metadata: `id`, `key`, `header:NAME`, or one of `about`; None where it has none."""
        if what.startswith(HEADER):
            return self.headers.get(what.removeprefix(HEADER))
        return {"id": self.id, "key": self.key}.get(what, self.about.get(what))


class ReadingOptions(TypedDict, total=False):
    """The options that the feeds of all brokers have.

    `format`: how bodies are read, json by default. `metadata`: by column what it gets of the message instead of the
    body: "id", "key", "header:NAME", or what the connector knows more. `key`: columns that are read from the key of a
    message where the body has none; a message without a body then deletes the row. `key_format`: how keys are read,
    text by default. `id`: the metadata that recognises a message, "id" by default; None: nothing does. `remember`: how
    many ids are remembered, 10,000 by default, 20,000 at most.
    """

    format: str | Format
    metadata: Mapping[str, str]
    key: str | Sequence[str]
    key_format: str | Format
    id: str | None
    remember: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How messages become rows; `reading` checks it."""

    format: Format
    metadata: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    key_format: Format
    id: str | None
    remember: int

    @property
    def needs(self) -> frozenset[str]:
        """The metadata that is used, so that a connector makes no other."""
        return frozenset({what for _, what in self.metadata} | ({self.id} if self.id is not None else set()))


def reading(known: Collection[str], options: ReadingOptions) -> Reading:
    """Return how the messages of a feed are read.

    Args:
        known: what `metadata` can be besides "id", "key" and headers.
        options: those of the feed.

    Raises:
        InvalidPlan: an option is not known, or is of something that is not known.
        InvalidArgument: `remember` is out of bounds.

    """
    names = ReadingOptions.__annotations__
    for name in options:
        if name not in names:
            raise InvalidPlan(f"{name}= is not known", hint=did_you_mean(name, names))
    metadata, key = dict(options.get("metadata") or {}), options.get("key") or ()
    key = (key,) if isinstance(key, str) else tuple(key)
    found = options.get("id", "id")
    for what in (*metadata.values(), *([] if found is None else [found])):
        if what not in {"id", "key", *known} and not (what.startswith(HEADER) and what != HEADER):
            raise InvalidPlan(
                f"{what!r} is no metadata of these messages",
                detail=f"Known are: id, key, {', '.join([*known, ''])}header:NAME.",
                hint=did_you_mean(what, ["id", "key", *known]),
            )
    if twice := set(metadata) & set(key):
        raise InvalidPlan(f"{', '.join(sorted(twice))} cannot be read from the key and from metadata")
    remember = options.get("remember", REMEMBERED)
    if not 0 <= remember <= MOST_REMEMBERED:
        raise InvalidArgument(f"remember= is a number from 0 to {MOST_REMEMBERED}, not {remember!r}")
    return Reading(
        format=format_of(options.get("format"), "json") or format_named("json"),
        metadata=tuple(metadata.items()),
        key=key,
        key_format=format_of(options.get("key_format"), "text") or format_named("text"),
        id=found,
        remember=remember,
    )


def time_of(number: float, *, in_second: int = 1) -> datetime | float:
    """Return the instant that a sender's number says; the number where no calendar has it: it fits no column."""
    try:
        return datetime.fromtimestamp(number / in_second, UTC)
    except (ValueError, OverflowError, OSError):
        return number


def key_of(found: object) -> bytes | None:
    """Return the key that a sender has put into a header, as which it may be of any type."""
    return found if found is None or isinstance(found, bytes) else _text(found).encode()


class MessageLanding:
    """A topic as a feed of messages fills it.

    Args:
        landing: the topic.
        how: how messages are read.

    Raises:
        InvalidPlan: the topic does not have the columns of `metadata` or `key`.

    """

    def __init__(self, landing: Landing, how: Reading) -> None:
        self._landing = landing
        self._how = how
        self._rows = _MessageRows(landing.schema, how)
        self._position, ids = _unpacked(landing.position())
        self._seen = dict.fromkeys(ids)
        self._progress: Progress = {}

    @property
    def position(self) -> bytes | None:
        """The position that the last `land` was given, None before the first."""
        return self._position

    def has_room(self) -> bool:
        """Whether the app keeps up; if not, stop receiving until it does."""
        return self._landing.has_room()

    def land(
        self, messages: Sequence[Message], *, position: bytes | None = None, refuse: bool = False
    ) -> Mapping[int, str]:
        """Append messages as rows or dead letters, but those that were landed before: durable on return, all or none.

        Args:
            messages: in order.
            position: where the feed continues, for a broker that can be read from a place; None leaves it as it is.
            refuse: if some cannot be decoded, land nothing, and return why, by the number of the message.

        Raises:
            AppendFailed: the disk refused. Leave `run`: what was landed is known when it is called again.

        """
        fresh, ids = self._fresh(messages)
        if fresh or position not in (None, self._position):
            position = self._position if position is None else position
            seen = self._seen | dict.fromkeys(ids)
            kept = islice(seen, max(0, len(seen) - self._how.remember), None)
            rows, dead = self._rows.of(fresh)
            if dead and refuse:
                number = {id(message): at for at, message in enumerate(messages)}
                return {number[id(fresh[at])]: letter.reason for at, letter in dead.items()}
            seen = dict.fromkeys(kept)
            self._landing.append(rows, position=_packed(position, seen), dead=list(dead.values()))
            self._seen, self._position = seen, position
        if len(fresh) < len(messages):
            self.report(repeated=self._progress.get("repeated", 0) + len(messages) - len(fresh))
        return {}

    def report(self, **progress: Unpack[Progress]) -> None:
        """Say how far the feed is; what was said before and is not said now stays."""
        self._progress |= progress
        self._landing.report(**self._progress)

    def lose(self, reason: str, *, position: bytes) -> None:
        """Make a dead letter of what the broker deleted before it was read, and continue at a position.

        Args:
            reason: what is gone.
            position: where the feed continues.

        """
        self._landing.append([], position=_packed(position, self._seen), dead=[DeadRecord("", reason)])
        self._position = position

    def _fresh(self, messages: Sequence[Message]) -> tuple[list[Message], list[bytes]]:
        """Return the messages that were not landed before, and their ids."""
        if self._how.id is None or not self._how.remember:
            return list(messages), []
        known = _known(messages, self._how.id)
        if None not in known and len(set(known)) == len(known) and self._seen.keys().isdisjoint(known):
            return list(messages), cast("list[bytes]", known)
        fresh, ids = [], dict[bytes, None]()
        for message, found in zip(messages, known, strict=True):
            if found is not None:
                if found in self._seen or found in ids:
                    continue
                ids[found] = None
            fresh.append(message)
        return fresh, list(ids)


class _MessageRows:
    """Makes rows of messages, with the columns of a topic."""

    def __init__(self, schema: pa.Schema, how: Reading) -> None:
        for name in (*(name for name, _ in how.metadata), *how.key):
            if name not in schema.names:
                raise InvalidPlan(
                    f'the topic has no column "{name}", which messages are to fill',
                    detail=f"Its columns are: {', '.join(schema.names)}.",
                    hint=did_you_mean(name, schema.names) or "Declare it in the schema of the stream.",
                )
        self._schema, self._metadata, self._form = schema, dict(how.metadata), how.format
        own = pa.schema([field for field in schema if field.name not in self._metadata])
        self._undecoded = Undecoded(own, how.key, how.format, how.key_format if how.key else None, bool(how.key))

    def of(self, messages: Sequence[Message]) -> tuple[pa.Table, dict[int, DeadRecord]]:
        """Return the rows of messages, and by their numbers the dead letters of those that have none."""
        if not messages:
            return self._schema.empty_table(), {}
        found = self._undecoded.rows(self._records(messages))
        reasons: dict[int, str] = dict(zip(found.bad.to_pylist(), found.reasons.to_pylist(), strict=True))
        rows = found.rows
        for name, what in self._metadata.items():
            column, bad = _column([each.value(what) for each in messages], self._schema.field(name))
            reasons |= {at: f"its {what} is no value of the column {name}: {why}" for at, why in bad.items()}
            rows = rows.append_column(name, column.take(found.at))
        if len(reasons) > len(found.bad):
            rows = rows.filter(pc.invert(pc.is_in(found.at, pa.array(list(reasons), found.at.type))))
        dead = {at: DeadRecord(_shown(messages[at].body), reasons[at]) for at in sorted(reasons)}
        deleted = "_deleted" in rows.column_names and pc.any(rows.column("_deleted")).as_py()
        return rows.select([*self._schema.names, *(["_deleted"] if deleted else [])]), dead

    def _records(self, messages: Sequence[Message]) -> pa.Table:
        tombstones = self._undecoded.upserts
        bodies = [each.body or None if tombstones else each.body or b"" for each in messages]
        records = {VALUE: pa.array(bodies, pa.binary())}
        if tombstones:
            records[KEY] = pa.array([each.key for each in messages], pa.binary())
        if HEADERS in self._form.columns:
            headers = [
                [{"name": name, "value": _text(value).encode()} for name, value in each.headers.items()]
                for each in messages
            ]
            records[HEADERS] = pa.array(headers, HEADERS_TYPE)
        return pa.table(records)


def _known(messages: Sequence[Message], what: str) -> list[bytes | None]:
    """Return what each message is recognised by, None where it has nothing; an empty text is nothing."""
    values = [each.id for each in messages] if what == "id" else [each.value(what) for each in messages]
    texts = [each.encode() if isinstance(each, str) and each.isascii() else _of_text(each) for each in values]
    return [blake2b(each, digest_size=_ID_BYTES).digest() if each else None for each in texts]


def _of_text(value: object) -> bytes | None:
    return None if value is None else _text(value).encode(errors="surrogateescape")


def _column(values: Sequence[object], field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """Return metadata as a column, null where there is none, and why some of it cannot be: by its number."""
    texts = pa.array([None if value is None else _text(value) for value in values], pa.string())
    if pa.types.is_string(field.type):
        return texts, {}
    there = pc.indices_nonzero(texts.is_valid())
    read = format_named("text").decode(texts.take(there), pa.schema([field]))
    good = there.filter(read.good)
    places = dict(zip(good.to_pylist(), range(len(good)), strict=True))
    column = read.rows.column(0).take(pa.array([places.get(at) for at in range(len(values))], pa.int64()))
    bad = pc.invert(read.good)
    return column, dict(zip(there.filter(bad).to_pylist(), read.reasons.filter(bad).to_pylist(), strict=True))


def _text(value: object) -> str:
    """Return a piece of metadata as text; bytes that are no text keep what can be read."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _shown(body: bytes | None) -> str:
    return (body or b"")[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN]


def _packed(own: bytes | None, ids: Collection[bytes]) -> bytes:
    """Return the position of an append: that of the feed (None: no byte), then ids, the oldest first."""
    mine = b"" if own is None else b"\x01" + own
    return _HEAD.pack(_VERSION, len(mine)) + mine + b"".join(ids)


def _unpacked(stored: bytes | None) -> tuple[bytes | None, list[bytes]]:
    if stored is None:
        return None, []
    _, size = _HEAD.unpack_from(stored)
    mine, ids = stored[_HEAD.size : _HEAD.size + size], stored[_HEAD.size + size :]
    return (mine[1:] if mine else None), [ids[at : at + _ID_BYTES] for at in range(0, len(ids), _ID_BYTES)]
