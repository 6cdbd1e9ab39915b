"""The sink: an epoch is one call of a script, which writes entries and the epoch's mark as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import redis

from headrace.base.errors import InvalidArgument
from headrace.base.time import duration
from headrace.connect.comparing import ENTRY, compare_entries
from headrace.connect.entry_keys import entry_keys
from headrace.connect.formats.json_text import encode, text_of
from headrace.connect.redis.address import RedisAddress, failures
from headrace.connect.redis.commands import arguments, command
from headrace.connect.redis.marks import MARKS, MarkedWriter
from headrace.connect.store import StoreRefused, StoreSink, together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from headrace.base.time import Clock
    from headrace.connect.redis.commands import Arguments
    from headrace.connect.sink import Difference, SinkWriter

_WRITE = """
local mark = redis.call('HMGET', KEYS[1], 'generation', 'epoch')
if not mark[1] then return 'LOST' end
if mark[1] ~= ARGV[1] then return 'FENCED' end
if tonumber(mark[2]) >= tonumber(ARGV[2]) then return 'DONE' end
redis.call('HSET', KEYS[1], 'generation', ARGV[1]) -- a full server refuses this, and would let pass what follows DEL
local ttl, whole, at, size = tonumber(ARGV[4]), ARGV[5] == '1', 6, #ARGV
while at <= size do
  local count, key = tonumber(ARGV[at]), ARGV[at + 1]
  redis.call('DEL', key)
  if count > 0 then
    if whole then redis.call('SET', key, ARGV[at + 2])
    else redis.call('HSET', key, unpack(ARGV, at + 2, at + 1 + count)) end
    if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
  end
  at = at + 2 + count
end
if ARGV[3] == '1' then redis.call('HSET', KEYS[1], 'epoch', ARGV[2]) end
return 'OK'
"""
MOST_ARGUMENTS, MOST_BYTES = 400_000, 32 << 20
"""What one call has: a server does nothing else meanwhile. A larger epoch is several calls."""
_ROWS = 8_192
_SCANNED = 1_000


def hashes(url: str, prefix: str, *, ttl: str | timedelta | None = None) -> RedisCache:
    """Return hashes `<prefix><key>` in Redis or Valkey as a sink of a table: a field a column, none where it is null.

    Exactly once. An epoch becomes visible at once, up to 400 000 texts or 32 MB; a larger one in several steps.

    Args:
        url: `redis://user:password@host:port/number`; the password may be `env:NAME`.
        prefix: how the keys begin, such as `"user:"`.
        ttl: how long an entry stays after it was written; None: until its row is deleted.

    Raises:
        InvalidPlan: it is no address.
        InvalidArgument: there is no prefix, or a ttl below a millisecond.

    """
    return _cache(url, prefix, ttl, whole=False)


def keys(url: str, prefix: str, *, ttl: str | timedelta | None = None) -> RedisCache:
    """Return texts `<prefix><key>` in Redis or Valkey as a sink of a table: the row as JSON; else as `hashes`."""
    return _cache(url, prefix, ttl, whole=True)


def _cache(url: str, prefix: str, ttl: str | timedelta | None, *, whole: bool) -> RedisCache:
    if not prefix or prefix.startswith(MARKS) or MARKS.startswith(prefix):
        hint = f'For example "user:"; keys {MARKS}… are ours.'
        raise InvalidArgument(f"{prefix!r} cannot be the prefix of keys in Redis", hint=hint)
    milliseconds = 0 if ttl is None else duration(ttl, what="ttl") // 1_000
    if ttl is not None and milliseconds < 1:
        raise InvalidArgument(f"the ttl is a millisecond at least, not {ttl!r}")
    return RedisCache(address=RedisAddress.parse(url), prefix=prefix, ttl=milliseconds, whole=whole)


@dataclass(frozen=True, kw_only=True)
class RedisCache(StoreSink):
    """Entries of a Redis. `ttl`: milliseconds, 0 for ever. `whole`: an entry is the row as JSON."""

    address: RedisAddress
    prefix: str
    ttl: int = 0
    whole: bool = False
    takes_streams: ClassVar[bool] = False

    @property
    def where(self) -> str:
        """Server and prefix."""
        return f"{self.address.place} ({self.prefix}…)"

    @property
    def name(self) -> str:
        """Server and prefix."""
        return f"redis:{self.address.place}:{self.prefix}"

    def overlaps(self, other: object) -> bool:
        """Whether a key of one may be a key of the other: a prefix begins with the other one."""
        if not isinstance(other, RedisCache) or self.address.database != other.address.database:
            return False
        return self.prefix.startswith(other.prefix) or other.prefix.startswith(self.prefix)

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the entries differ from what they should be, and with `repair` bring them level.

        Raises:
            Unavailable: the server does not answer.

        """
        with failures(self.where), self.address.client() as client:
            delete = partial(_unlink, client) if repair else None
            return compare_entries(self, rows, self._held(client), entries=self._entries, delete=delete)

    def _entries(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        keys = pc.binary_join_element_wise(pa.scalar(self.prefix), entry_keys(rows, self.key), pa.scalar(""))
        if self.whole:
            return keys, encode(rows)
        return keys, encode(pa.record_batch({name: text_of(rows.column(name)) for name in rows.schema.names}))

    def _held(self, client: redis.Redis) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the prefix; one of another type is there without its text."""
        pattern = "".join(f"[{each}]" if each in "*?[" else each for each in self.prefix.replace("\\", "\\\\"))
        found = (key.decode(errors="replace") for key in client.scan_iter(f"{pattern}*", count=_SCANNED))
        while some := list(dict.fromkeys(islice(found, _SCANNED))):
            with client.pipeline(transaction=False) as batched:
                for key in some:
                    (batched.get if self.whole else batched.hgetall)(key)
                yield pa.record_batch(
                    [pa.array(some), self._texts(batched.execute(raise_on_error=False))], schema=ENTRY
                )

    def _texts(self, answers: list[Any]) -> pa.Array:
        if self.whole:
            texts = [each.decode(errors="replace") if isinstance(each, bytes) else None for each in answers]
            return pa.array(texts, pa.string())
        hashes = [each if isinstance(each, dict) else {} for each in answers]
        columns = {
            name: pa.array([_decoded(each.get(name.encode())) for each in hashes], pa.string())
            for name in self.columns.names
        }
        known = {name.encode() for name in self.columns.names}
        more = pa.array([not known.issuperset(each) for each in hashes], pa.bool_())
        return pc.if_else(more, pa.scalar(None, pa.string()), encode(pa.record_batch(columns)))

    def check(self) -> None:
        """Ask whether the server answers and takes the user.

        Raises:
            Unavailable: it does not answer.
            AccessRefused: it refuses the user.

        """
        with failures(self.where), self.address.client() as client:
            client.exists(self.prefix)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: the server does not answer.
            AccessRefused: it refuses the user.

        """
        del clock
        return CacheWriter(self, writer)


class CacheWriter(MarkedWriter):
    """Writes epochs as entries."""

    wrote = "published"

    def __init__(self, sink: RedisCache, writer: str) -> None:
        super().__init__(sink.where, sink.address, writer)
        self.sink = sink
        with failures(sink.where):
            self.script: str = self.client.script_load(_WRITE)

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch's entries; the mark comes with the last of them.

        Raises:
            Unavailable: the server does not answer, or takes no writes now.
            WriterFenced: a newer writer has taken over.
            OutputLost: the mark is gone: the server was emptied.
            StoreRefused: it refuses the entries, such as a key that is no hash.

        """
        self.sink.fault("before_transaction")
        held: list[Arguments] = []
        count = size = 0
        for each in self._arguments(rows):
            if held and (count + each.number > MOST_ARGUMENTS or size + len(each.data) > MOST_BYTES):
                self._call(epoch, held, last=False)
                self.sink.fault("in_transaction")
                held, count, size = [], 0, 0
            held.append(each)
            count, size = count + each.number, size + len(each.data)
        self.sink.fault("before_transaction_ends")
        self._call(epoch, held, last=True)
        self.sink.fault("after_transaction")
        self.last = epoch

    def _arguments(self, rows: Iterator[pa.RecordBatch]) -> Iterator[Arguments]:
        sink, names = self.sink, self.sink.columns.names
        for table in together(rows, _ROWS):
            for some in table.combine_chunks().to_batches(_ROWS):
                yield arguments(some, key=sink.key, columns=names, prefix=sink.prefix, whole=sink.whole)

    def _call(self, epoch: int, rows: list[Arguments], *, last: bool) -> None:
        given = [self.script, 1, self.mark, self.generation, epoch, int(last), self.sink.ttl, int(self.sink.whole)]
        try:
            with failures(self.sink.where):
                said = self._send(command("EVALSHA", given, rows))
        except redis.exceptions.NoScriptError:  # the server was started again
            with failures(self.sink.where):
                self.client.script_load(_WRITE)
                said = self._send(command("EVALSHA", given, rows))
        except redis.ResponseError as error:
            raise StoreRefused(self.sink.where, str(error), epoch=epoch) from error
        self.check(said)

    def _send(self, packed: list[bytes]) -> object:
        """Send what is encoded already, on a connection that is thrown away if it fails."""
        pool = self.client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command(packed)
            return connection.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _unlink(client: redis.Redis, keys: list[str]) -> None:
    for at in range(0, len(keys), _SCANNED):
        client.unlink(*keys[at : at + _SCANNED])
