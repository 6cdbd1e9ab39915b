"""Out: rows become entries of a Redis stream; a call of a script adds them with the number of what was added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import redis

from headrace.base.errors import InvalidArgument
from headrace.connect.json_spans import as_text, members
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER, MessageSink, WritingOptions, outgoing, writing
from headrace.connect.redis.address import RedisAddress, failures
from headrace.connect.redis.marks import MarkedWriter
from headrace.connect.store import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import Guarantee, SinkWriter

_ADD = """
local mark = redis.call('HMGET', KEYS[1], 'generation', 'epoch', 'in', 'added')
if not mark[1] then return 'LOST' end
if mark[1] ~= ARGV[1] then return 'FENCED' end
local epoch, first, last, most = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]
if tonumber(mark[2]) >= epoch then return 'DONE' end
local added = tonumber(mark[3] or -1) == epoch and tonumber(mark[4]) or 0
redis.call('HSET', KEYS[1], 'generation', ARGV[1]) -- a full server refuses this, before anything is added
local at, size, number = 6, #ARGV, first
while at <= size do
  local count = tonumber(ARGV[at])
  if number >= added then
    if most == '' then redis.call('XADD', KEYS[2], '*', unpack(ARGV, at + 1, at + count))
    else redis.call('XADD', KEYS[2], 'MAXLEN', '~', most, '*', unpack(ARGV, at + 1, at + count)) end
  end
  number, at = number + 1, at + 1 + count
end
if last then redis.call('HSET', KEYS[1], 'epoch', epoch)
else redis.call('HSET', KEYS[1], 'in', epoch, 'added', math.max(added, number)) end
return 'OK'
"""


def entries(
    url: str, stream: str, *, field: str | None = None, most: int | None = None, **options: Unpack[WritingOptions]
) -> RedisEntries:
    """Return a sink whose rows are entries of a stream of Redis or Valkey: exactly once.

    An entry also has its id in the field headrace-id, and its key in headrace-key. An epoch of more than 1,000 rows is
    added in several steps, each once.

    Args:
        url: `redis://user:password@host:port/number`; the password may be `env:NAME`.
        stream: its key.
        field: the field that the record is written to; None: each column is a field, with the text that JSON has.
        most: about how many entries the stream keeps; None: all.
        options: as all brokers have.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: there is no stream, or `most` is below one.

    """
    if not stream or (most is not None and most < 1):
        raise InvalidArgument("a stream has a name, and keeps an entry at least")
    how = writing(stream, options)
    return RedisEntries(address=RedisAddress.parse(url), how=how, stream=stream, field=field, most=most)


@dataclass(frozen=True, kw_only=True)
class RedisEntries(MessageSink):
    """Entries of a stream; `entries` creates it."""

    address: RedisAddress
    stream: str
    field: str | None
    most: int | None
    guarantee: Guarantee = "exactly_once"

    @property
    def where(self) -> str:
        """Server and stream."""
        return f"{self.address.place} (stream {self.stream})"

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app."""
        return f"{self.address.place}#{self.stream}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: the server does not answer.
            AccessRefused: it refuses the user.

        """
        del clock
        return _Writer(self, writer)


class _Writer(MarkedWriter):
    """Adds epochs."""

    wrote = "added"

    def __init__(self, sink: RedisEntries, writer: str) -> None:
        super().__init__(sink.where, sink.address, writer)
        self.sink, self.writer = sink, writer

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Add an epoch's entries; the mark comes with the last of them.

        Raises:
            Unavailable: the server does not answer, or takes no writes now.
            WriterFenced: a newer writer has taken over.
            OutputLost: the mark is gone: the server was emptied.
            StoreRefused: it refuses the entries, such as for a key that is no stream.

        """
        number = 0
        for some in outgoing(self.sink, self.writer, epoch, rows):
            self._add(epoch, number, some, last=False)
            number += len(some)
        self._add(epoch, number, (), last=True)
        self.last = epoch

    def _add(self, epoch: int, first: int, messages: Sequence[Outgoing], *, last: bool) -> None:
        given: list[Any] = [self.generation, epoch, first, int(last), self.sink.most or ""]
        for each in messages:
            fields = self._fields(each)
            given += [len(fields), *fields]
        try:
            with failures(self.sink.where):
                said = self.client.eval(_ADD, 2, self.mark, self.sink.stream, *given)
        except redis.ResponseError as error:
            raise StoreRefused(self.sink.where, str(error), epoch=epoch) from error
        self.check(said)

    def _fields(self, each: Outgoing) -> list[str | bytes]:
        """Return names and values by turns."""
        if self.sink.field is not None:
            own: dict[str, str | bytes] = {self.sink.field: each.body}
        else:
            columns = members(each.body.decode()) if each.body else {}
            own = {name: as_text(value) for name, value in columns.items() if value != "null"}
        key = {} if each.key is None else {KEY_HEADER: each.key}
        return [part for pair in {**own, **each.headers, **key, ID_HEADER: each.id}.items() for part in pair]
