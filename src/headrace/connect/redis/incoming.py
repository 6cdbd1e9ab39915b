"""In: the entries of a Redis stream; the id of the last one is stored with each append."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack

import redis

from headrace.base.broker_errors import BrokerFailed, PositionLost
from headrace.base.errors import InvalidArgument
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading, time_of
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER
from headrace.connect.redis.address import RedisAddress, failures

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from headrace.connect.feed import Landing

KNOWN = ("entry", "time")
TOGETHER = 1_000
WAIT_MS = 200
WAIT_SECONDS = 0.2
FIRST = "0-0"
_Entry = tuple[bytes, "dict[bytes, bytes] | None"]


def stream(
    url: str,
    stream: str,
    *,
    group: str | None = None,
    consumer: str = "headrace",
    field: str | None = None,
    start: Literal["all", "new"] = "all",
    **options: Unpack[ReadingOptions],
) -> RedisStream:
    """Return a feed of a stream of Redis or Valkey: each entry is landed exactly once, in order.

    Metadata: "entry" (its id), "time" (that of the id, if Redis made it); `header:NAME` is the field NAME, the "id" the
    field headrace-id, the "key" the field headrace-key.

    Args:
        url: `redis://user:password@host:port/number`; the password may be `env:NAME`.
        stream: its key; it need not exist yet.
        group: read as the member `consumer` of this group, which is created if it is missing, and acknowledge entries;
            None: read all entries by their ids.
        consumer: the name of the member: the same after a restart, and used by nobody else.
        field: the field with the record; None: the entry's fields are those of the record.
        start: where a new feed or a new group begins: "all" at the first entry, "new" at what comes.
        options: as all brokers have; `id` is None here: the entry's own id is enough.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: a name is empty, or `start` is another.

    """
    if not stream or not consumer or group == "":
        raise InvalidArgument("a stream, its group and its consumer have names")
    if start not in {"all", "new"}:
        raise InvalidArgument(f'start is "all" or "new", not {start!r}')
    how = reading(KNOWN, {"id": None, **options})
    address = RedisAddress.parse(url)
    return RedisStream(
        address=address, stream=stream, group=group, consumer=consumer, field=field, start=start, how=how
    )


@dataclass(frozen=True, kw_only=True)
class RedisStream(Feed):
    """The entries of a stream; `stream` creates it."""

    address: RedisAddress
    stream: str
    group: str | None
    consumer: str
    field: str | None
    start: str
    how: Reading

    @property
    def where(self) -> str:
        """Server and stream."""
        return f"{self.address.place} (stream {self.stream})"

    @property
    def identity(self) -> str:
        """Server, stream and group."""
        return f"{self.address.place}#{self.stream}/{self.group or ''}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land entries until `stop` is set.

        Raises:
            Unavailable: the server does not answer.
            AccessRefused: it refuses the user.
            PositionLost: the stream ends before what was read.

        """
        messages = MessageLanding(landing, self.how)
        try:
            with failures(self.where), self.address.client() as client:
                _Reader(self, client, messages).run(stop)
        except redis.ResponseError as error:
            raise BrokerFailed(f"{self.where} refuses a request: {error}") from error


class _Reader:
    """Reads a stream, by ids or as a member of a group."""

    def __init__(self, feed: RedisStream, client: redis.Redis, messages: MessageLanding) -> None:
        self.feed, self.client, self.messages = feed, client, messages
        stored = messages.position
        place = {"entry": FIRST, "deleted": FIRST} if stored is None else json.loads(stored)
        self.last: str = place["entry"]
        self.deleted: str = place["deleted"]
        landed = [] if stored is None else place.get("landed")
        self.landed: set[str] | None = None if landed is None else set(landed)
        """What a member of a group landed last, and may not have acknowledged; None: an older release did not say."""
        about = self._about()
        newest = about.get("last-generated-id", FIRST.encode()).decode()
        if stored is None:
            self.last = newest if feed.start == "new" and feed.group is None else FIRST
            if self.last != FIRST:
                messages.land([], position=self._position())  # a crash does not move the beginning
        elif _order(newest) < _order(self.last):
            raise PositionLost(feed.where, read=f"entry {self.last}", now=f"its last one is {newest}")
        elif feed.group is None:
            self._check_deleted(about)
        if feed.group is not None:
            self._join(feed.group)
        self.pending = feed.group is not None
        """Whether entries that this member did not acknowledge before are still to be read."""

    def run(self, stop: threading.Event) -> None:
        """Land entries until `stop` is set."""
        while not stop.is_set():
            if not self.messages.has_room():
                stop.wait(WAIT_SECONDS)
                continue
            received = self._read()
            if received:
                self._land(received)
            elif self.pending:
                self.pending = False

    def _read(self) -> Sequence[_Entry]:
        feed, group = self.feed, self.feed.group
        if group is None:
            found = self.client.xread({feed.stream: self.last}, count=TOGETHER, block=WAIT_MS)
        else:
            place = {feed.stream: "0" if self.pending else ">"}
            block = None if self.pending else WAIT_MS
            found = self.client.xreadgroup(group, feed.consumer, place, count=TOGETHER, block=block)
        some = found.values() if isinstance(found, dict) else [entries for _, entries in found or ()]
        return [each for entries in some for each in _flat(entries)]

    def _land(self, received: Sequence[_Entry]) -> None:
        fresh = [each for each in received if self._is_new(each[0].decode())]
        if gone := [name.decode() for name, fields in fresh if not fields]:
            reason = f"entries were deleted before they were landed: {', '.join(gone)}"
            self.messages.lose(reason, position=self._position())
        there = [(name.decode(), fields) for name, fields in fresh if fields]
        if there:
            names = [name for name, _ in there]
            self.last = max(self.last, *names, key=_order)
            self.landed = set(names) if self.feed.group is not None else set()
            self.messages.land([self._message(*each) for each in there], position=self._position())
        if self.feed.group is not None:
            self.client.xack(self.feed.stream, self.feed.group, *(name for name, _ in received))

    def _is_new(self, name: str) -> bool:
        """Whether an entry is not landed: a member of a group may get what another one had, after later entries."""
        if self.feed.group is None or self.landed is None:
            return _order(name) > _order(self.last)
        return name not in self.landed

    def _message(self, name: str, fields: dict[bytes, bytes]) -> Message:
        texts = {key.decode(errors="replace"): value for key, value in fields.items()}
        if self.feed.field is None:
            body: bytes | None = json.dumps(
                {key: text.decode(errors="replace") for key, text in texts.items()}
            ).encode()
        else:
            body = texts.get(self.feed.field)
        own, key = texts.get(ID_HEADER), texts.get(KEY_HEADER)
        milliseconds = int(name.partition("-")[0])
        about = {"entry": name, "time": time_of(milliseconds, in_second=1_000)}
        return Message(body, id=own.decode() if own else name, key=key, headers=texts, about=about)

    def _position(self) -> bytes:
        landed = None if self.landed is None else sorted(self.landed)
        return json.dumps({"entry": self.last, "deleted": self.deleted, "landed": landed}).encode()

    def _about(self) -> dict[str, Any]:
        """Return what Redis says of the stream: nothing where there is none."""
        if not self.client.exists(self.feed.stream):
            return {}
        about: dict[str, Any] = self.client.xinfo_stream(self.feed.stream)
        return about

    def _check_deleted(self, about: dict[str, Any]) -> None:
        """Make a dead letter of entries that were deleted before they were read, where Redis 7 knows of them."""
        deleted = about.get("max-deleted-entry-id", FIRST.encode()).decode()
        if _order(deleted) > max(_order(self.last), _order(self.deleted)):
            self.deleted = deleted
            reason = f"entries after {self.last} were deleted before they were read, up to {deleted}"
            self.messages.lose(reason, position=self._position())

    def _join(self, group: str) -> None:
        try:
            self.client.xgroup_create(
                self.feed.stream, group, id="$" if self.feed.start == "new" else "0", mkstream=True
            )
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _order(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


def _flat(entries: Any) -> list[_Entry]:
    """Return entries of an answer: the client wraps them in another list with some versions of the protocol."""
    return [each for some in entries for each in (some if isinstance(some, list) else [some])]
