"""In: the records of all shards of a stream; the sequence number of each shard is stored with each append.

A shard that was split or merged ends, and its children go on. A child is read when its parents were read to their ends,
so records of one partition key are landed in their order.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from botocore.exceptions import ClientError

from headrace.base.broker_errors import PositionLost
from headrace.base.errors import InvalidArgument
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.feed import Feed
from headrace.connect.kinesis.aggregated import unpacked
from headrace.connect.kinesis.service import THROTTLED, KinesisService
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Sequence

    from headrace.connect.feed import Landing

KNOWN = ("shard", "sequence", "time")
ENDED = "ended"
AT_ONCE = 16
IDLE_SECONDS = 0.25
"""Kinesis answers five reads a second and shard."""
_CLOCK = SystemClock()
_EXPIRED = "ExpiredIteratorException"


def stream(
    stream: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    profile: str | None = None,
    start: str | datetime = "oldest",
    **options: Unpack[ReadingOptions],
) -> KinesisStream:
    """Return a feed of a stream of Amazon Kinesis: each record is landed exactly once, in order by partition key.

    Shards that are split and merged are followed. Records that Amazon's Producer Library packed are unpacked.

    Metadata: "shard", "sequence", "time" (when Kinesis stored it), "id" (the sequence number), "key" (the partition
    key).

    Args:
        stream: its name or ARN.
        region: of Amazon; that of the environment or the profile by default.
        endpoint: another address than Amazon's.
        profile: of the shared credentials; credentials are otherwise those of the environment or a role.
        start: where a new feed begins: "oldest", "latest", or a time.
        options: as all brokers have; `id` is None here: the sequence number is enough.

    Raises:
        InvalidPlan: an option is not known.
        InvalidArgument: there is no stream, or `start` is another.

    """
    if start not in {"oldest", "latest"} and not isinstance(start, datetime):
        raise InvalidArgument(f'start is "oldest", "latest" or a time, not {start!r}')
    service = KinesisService(stream=stream, region=region, endpoint=endpoint, profile=profile)
    return KinesisStream(service=service, start=start, how=reading(KNOWN, {"id": None, **options}))


@dataclass(frozen=True, kw_only=True)
class KinesisStream(Feed):
    """The records of a stream; `stream` creates it."""

    service: KinesisService
    start: str | datetime
    how: Reading

    @property
    def identity(self) -> str:
        """The stream."""
        return f"kinesis:{self.service.stream}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land records until `stop` is set.

        Raises:
            Unavailable: Kinesis does not answer.
            QueueMissing: there is no such stream.
            PositionLost: the stream was deleted and created again.

        """
        messages = MessageLanding(landing, self.how)
        with ThreadPoolExecutor(AT_ONCE, "headrace-kinesis") as pool:
            _Reader(self, messages, pool).run(stop)


@dataclass(kw_only=True)
class _Place:
    """How far a feed is: the stream as it was created, by shard the last sequence number landed or `ENDED`.

    `since`: milliseconds since 1970; shards without a number are read from there, None: from their first record.
    """

    created: str
    since: float | None
    shards: dict[str, str] = field(default_factory=dict)

    def stored(self) -> bytes:
        return json.dumps({"created": self.created, "since": self.since, "shards": self.shards}).encode()


class _Read(NamedTuple):
    """What one read of a shard gave: records, where to read next (None: the shard has ended)."""

    shard: str
    records: Sequence[dict[str, Any]]
    iterator: str | None


class _Reader:
    """Reads a stream."""

    def __init__(self, feed: KinesisStream, messages: MessageLanding, pool: ThreadPoolExecutor) -> None:
        self.feed, self.messages, self.pool = feed, messages, pool
        self.service = feed.service
        self.client = self.service.client()
        self.place = self._begin()
        self.iterators: dict[str, str] = {}
        self.listed: dict[str, dict[str, Any]] = {}

    def run(self, stop: threading.Event) -> None:
        self._list()
        while not stop.is_set():
            if not self.messages.has_room():
                stop.wait(IDLE_SECONDS)
                continue
            reads = self._reads()
            if not self._land(reads):
                stop.wait(IDLE_SECONDS)
            if any(each.iterator is None for each in reads):
                self._list()

    def _begin(self) -> _Place:
        """Return where to begin; a time is stored before anything is read, so that a crash does not move it."""
        with self.service.failures():
            about = self.client.describe_stream_summary(**self.service.named)["StreamDescriptionSummary"]
        created = about["StreamCreationTimestamp"].astimezone(UTC).isoformat()
        if self.messages.position is not None:
            place = _Place(**json.loads(self.messages.position))
            if place.created != created:
                raise PositionLost(self.service.place, read="its shards", now=f"it was created at {created}")
            return place
        start = self.feed.start
        since = start.timestamp() * 1000 if isinstance(start, datetime) else None
        place = _Place(created=created, since=_CLOCK.now() / 1000 if start == "latest" else since)
        if place.since is not None:
            self.messages.land([], position=place.stored())
        return place

    def _list(self) -> None:
        """Ask which shards there are; forget those that are gone."""
        found: list[dict[str, Any]] = []
        request: dict[str, Any] = dict(self.service.named)
        with self.service.failures():
            while request:
                page = self.client.list_shards(**request)
                found += page["Shards"]
                request = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
        self.listed = {each["ShardId"]: each for each in found}
        gone = {shard for shard in self.place.shards if shard not in self.listed}
        lost = sorted(shard for shard in gone if self.place.shards[shard] != ENDED)
        self.place.shards = {shard: at for shard, at in self.place.shards.items() if shard not in gone}
        if lost:
            reason = f"the shards {', '.join(lost)} were deleted by Kinesis before they were read to their ends"
            self.messages.lose(reason, position=self.place.stored())

    def _readable(self) -> Iterable[str]:
        """Return the shards that have not ended, and whose parents have."""
        for shard, about in self.listed.items():
            parents = (about.get("ParentShardId"), about.get("AdjacentParentShardId"))
            waits = any(each in self.listed and self.place.shards.get(each) != ENDED for each in parents if each)
            if self.place.shards.get(shard) != ENDED and not waits:
                yield shard

    def _reads(self) -> list[_Read]:
        return list(self.pool.map(self._read, self._readable()))

    def _read(self, shard: str) -> _Read:
        try:
            with self.service.failures():
                return self._read_on(shard)
        except Unavailable as error:
            if isinstance(error.__cause__, ClientError) and _code(error.__cause__) in THROTTLED:
                return _Read(shard, (), self.iterators.get(shard, ""))  # later
            raise

    def _read_on(self, shard: str) -> _Read:
        for _ in range(2):
            iterator = self.iterators.get(shard) or self._iterator(shard)
            try:
                answer = self.client.get_records(ShardIterator=iterator, Limit=10_000)
            except ClientError as error:
                if _code(error) != _EXPIRED:
                    raise
                self.iterators.pop(shard, None)  # it is valid for five minutes
            else:
                return _Read(shard, answer["Records"], answer.get("NextShardIterator"))
        raise Unavailable(f"{self.service.place}: iterators of {shard} expire at once")

    def _iterator(self, shard: str) -> str:
        known, since = self.place.shards.get(shard), self.place.since
        if known is not None:
            where: dict[str, Any] = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": known}
        elif since is not None:
            where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": since / 1000}
        else:
            where = {"ShardIteratorType": "TRIM_HORIZON"}
        answer = self.client.get_shard_iterator(**self.service.named, ShardId=shard, **where)
        iterator: str = answer["ShardIterator"]
        return iterator

    def _land(self, reads: Sequence[_Read]) -> bool:
        """Land what was read with one append; return whether there was anything."""
        records = [message for each in reads for record in each.records for message in _messages(each.shard, record)]
        before = dict(self.place.shards)
        for each in reads:
            if each.records:
                self.place.shards[each.shard] = each.records[-1]["SequenceNumber"]
            if each.iterator is None:
                self.place.shards[each.shard] = ENDED
        if self.place.shards != before:
            self.messages.land(records, position=self.place.stored())
        for each in reads:
            if each.iterator:
                self.iterators[each.shard] = each.iterator
            else:
                self.iterators.pop(each.shard, None)
        return bool(records)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _messages(shard: str, record: dict[str, Any]) -> list[Message]:
    number = record["SequenceNumber"]
    about = {"shard": shard, "sequence": number, "time": record["ApproximateArrivalTimestamp"].astimezone(UTC)}
    parts = unpacked(record["Data"], record["PartitionKey"])
    ids = [number] if len(parts) == 1 else [f"{number}/{at}" for at in range(len(parts))]
    return [Message(body, id=id_, key=key.encode(), about=about) for id_, (body, key) in zip(ids, parts, strict=True)]
