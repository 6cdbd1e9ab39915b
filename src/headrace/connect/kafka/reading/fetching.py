"""Reads ranges of a partition as whole record batches: fetched by Kafka's protocol, parsed by compiled code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest

from headrace.base.outside import OffsetsBeyondEnd, OffsetsLost, SourceReplaced, Unavailable
from headrace.connect.kafka.client.brokers import (
    OFFSET_OUT_OF_RANGE,
    Brokers,
    Pauses,
    Retried,
    TopicState,
    repeated,
)
from headrace.connect.kafka.reading.raw_columns import EARLIEST, LATEST, of_range
from headrace.connect.kafka.reading.record_batches import FetchedBatches, Place, records_of, scanned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.connect.kafka.client.wire import Connection

_BY_TOPIC_ID = 13  # version of Fetch
_WAIT_MS = 500
_FIRST_FETCH = 1 << 20
_SPARE = 64 << 10  # bytes beyond what a range is thought to have


class _Fetched(NamedTuple):
    """The answer to a fetch: record batches, and which transactions in them were aborted (None: they are seen)."""

    records: bytes | None
    aborted: list[tuple[int, int]] | None


@dataclass
class _Seen:
    """What is known of a partition since it was read: bytes an offset; up to where, and the last record's epoch.

    The epoch is that of the leader that wrote the record before `upto`; -1 where compaction has removed it.
    """

    density: float | None = None
    upto: int = -1
    epoch: int = -1


@dataclass
class FastTopic:
    """A topic, read by its leaders.

    `committed`: transactions that are open or were aborted are not seen.
    """

    brokers: Brokers
    name: str
    committed: bool
    _state: TopicState | None = None
    _seen: dict[int, _Seen] = field(default_factory=dict)

    # ---- what there is ----

    def state(self, *, again: bool = False) -> TopicState | None:
        """Return the topic's state, None where it does not exist. `again`: it is asked for now.

        Raises:
            SourceReplaced: it existed, and is gone, or has another id.
            Unavailable: no broker answers.

        """
        if self._state is None or again:
            found = repeated(lambda: self.brokers.topic(self.name), again=lambda: None)
            if self._state is not None and found is None:
                found = self._really_gone()
            if self._state is not None and found is not None and found.id != self._state.id:
                raise SourceReplaced(f'the topic "{self.name}"', gone=False)
            self._state = found
        return self._state

    def exists(self, *, again: bool = False) -> bool:
        """Whether the cluster has the topic. `again`: it is asked now.

        Raises:
            SourceReplaced: it existed, and is gone, or has another id.

        """
        return self.state(again=again) is not None

    def close(self) -> None:
        """Close the connections."""
        self.brokers.close()

    def _really_gone(self) -> TopicState:
        """Ask again whether a topic is gone: a broker that has just started may not know it yet."""

        def attempt() -> TopicState:
            found = self.brokers.topic(self.name)
            if found is None:
                raise Retried
            return found

        try:
            return repeated(attempt, again=lambda: None, patience=1.0)
        except Unavailable as error:
            if not isinstance(error.__cause__, Retried):
                raise
            raise SourceReplaced(f'the topic "{self.name}"', gone=True) from error

    def _known(self) -> TopicState:
        state = self.state()
        if state is None:
            raise Unavailable(f'the cluster has no topic "{self.name}"')
        return state

    def offsets(self, *times: int) -> list[dict[int, int]]:
        """Return offsets by partition, for each time: `EARLIEST`, `LATEST`, or milliseconds (-1: none is so late).

        All requests are on their way at once: one round trip.

        Raises:
            SourceReplaced: the topic is gone, or was replaced.
            Unavailable: a partition has no leader, or no broker answers.

        """
        return repeated(lambda: self._offsets(times), again=lambda: self.state(again=True))

    def _offsets(self, times: Sequence[int]) -> list[dict[int, int]]:
        leaders: dict[int, list[int]] = {}
        for partition in self._known().leaders:
            leaders.setdefault(self._leader(partition), []).append(partition)
        found: list[dict[int, int]] = [{} for _ in times]
        for node, partitions in leaders.items():
            with self.brokers.node(node) as connection:
                for time in times:
                    connection.send(self._list_offsets(partitions, time))
                answers = [connection.receive() for _ in times]
            for into, answer in zip(found, answers, strict=True):
                for each in answer.topics[0].partitions:
                    self.brokers.check(each.error_code, f"read {self._about(each.partition_index)}")
                    into[each.partition_index] = each.offset
        return found

    def _list_offsets(self, partitions: Sequence[int], time: int) -> ListOffsetsRequest:
        topic = ListOffsetsRequest.ListOffsetsTopic
        leaders = self._known().leaders
        wanted = [
            topic.ListOffsetsPartition(partition_index=each, current_leader_epoch=leaders[each][1], timestamp=time)
            for each in partitions
        ]
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=int(self.committed), topics=[topic(name=self.name, partitions=wanted)]
        )

    def _about(self, partition: int) -> str:
        return f'the topic "{self.name}", partition {partition}'

    # ---- reading ----

    def read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records `[start, end)` of a partition, with columns of `raw_columns.TYPES`.

        Raises:
            OffsetsLost: the partition begins after `start`.
            OffsetsBeyondEnd: it ends before `end`, or another leader's records are where some were read.
            SourceReplaced: the topic is gone, or was replaced.
            RecordsDamaged: what a broker sent is not what was stored.
            OldFormat: batches have an older format than this reads.
            Unavailable: no leader answers.

        """
        batches = self._read(partition, start, end, columns)
        return of_range(batches) if "_appended" in columns else batches

    def _read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        pauses: Pauses | None = None
        at = start
        while at < end:
            try:
                self._check_not_truncated(partition, at)
                with self.brokers.node(self._leader(partition)) as connection:
                    connection.send(self._fetch(connection, partition, at, end))
                    while at < end:
                        fetched = self._answer(connection, partition, at, end)
                        batches = scanned(fetched.records, Place(self.name, str(partition)))
                        following = batches.next_offset
                        if following is None or following <= at:
                            raise self._nothing(partition, at)
                        pauses = None
                        self._learn(partition, (at, following, end), len(fetched.records or b""), batches)
                        read, at = at, following
                        sent = self._send_ahead(connection, partition, at, end)
                        yield from records_of(batches, fetched.aborted, (read, min(at, end)), columns)
                        if sent is not None:
                            raise sent
            except (Retried, Unavailable) as error:
                pauses = pauses or Pauses()
                pauses.wait(error)
                self.state(again=True)

    def _leader(self, partition: int) -> int:
        leaders = self._known().leaders
        if partition not in leaders or leaders[partition][0] < 0:
            raise Retried(f"{self._about(partition)} has no leader")
        return leaders[partition][0]

    def _fetch(self, connection: Connection, partition: int, at: int, end: int) -> FetchRequest:
        version = connection.version(FetchRequest)
        topic, size = FetchRequest.FetchTopic, self._size(partition, end - at)
        wanted = topic.FetchPartition(
            partition=partition,
            current_leader_epoch=self._known().leaders[partition][1],
            fetch_offset=at,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=size,
        )
        name: dict[str, Any] = {"topic_id": self._known().id} if version >= _BY_TOPIC_ID else {"topic": self.name}
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self.committed),
            session_id=0,
            session_epoch=-1,
            topics=[topic(partitions=[wanted], **name)],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _size(self, partition: int, offsets: int) -> int:
        density = self._seen.setdefault(partition, _Seen()).density
        needed = _FIRST_FETCH if density is None else int(density * offsets) + _SPARE
        return max(1, min(needed, self.brokers.settings.fetch_bytes))

    def _answer(self, connection: Connection, partition: int, at: int, end: int) -> _Fetched:
        answer = connection.receive()
        self.brokers.check(answer.error_code, f"read {self._about(partition)}")
        found = answer.responses[0].partitions[0]
        if found.error_code == OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(partition, at, end)
        self.brokers.check(found.error_code, f"read {self._about(partition)}")
        aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
        return _Fetched(found.records, aborted if self.committed else None)

    def _out_of_range(self, partition: int, at: int, end: int) -> Exception:
        earliest, latest = (each.get(partition, 0) for each in self.offsets(EARLIEST, LATEST))
        if at < earliest:
            return OffsetsLost(self.name, str(partition), start=at, earliest=earliest)
        if at > latest:
            return OffsetsBeyondEnd(self.name, str(partition), read=end, end=latest)
        return Retried(f"{self._about(partition)}: offset {at} was not there a moment ago")

    def _nothing(self, partition: int, at: int) -> Retried:
        return Retried(f"{self._about(partition)}: the broker has sent no records at offset {at}")

    def _send_ahead(self, connection: Connection, partition: int, at: int, end: int) -> Unavailable | None:
        """Ask for what follows, which is on its way while what came is parsed; return why that failed."""
        if at < end:
            try:
                connection.send(self._fetch(connection, partition, at, end))
            except Unavailable as error:
                return error
        return None

    def _learn(self, partition: int, offsets: tuple[int, int, int], size: int, batches: FetchedBatches) -> None:
        at, following, end = offsets
        seen = self._seen.setdefault(partition, _Seen())
        seen.density = size / max(1, following - at)
        seen.upto = min(following, end)
        seen.epoch = batches.epoch(seen.upto - 1)

    def epoch_before(self, partition: int, offset: int) -> int | None:
        """Return the epoch of the leader that wrote the record before an offset; None where it cannot be told.

        It does not change until that record is removed: compaction keeps the epochs of the batches that it rewrites.
        """
        seen = self._seen.get(partition)
        if seen is not None and seen.upto == offset:
            return seen.epoch if seen.epoch >= 0 else None
        if offset <= 0:
            return None
        try:
            batches = repeated(lambda: self._one(partition, offset - 1), again=lambda: self.state(again=True))
        except (OffsetsLost, OffsetsBeyondEnd):
            return None
        epoch = batches.epoch(offset - 1)
        return epoch if epoch >= 0 else None

    def _one(self, partition: int, at: int) -> FetchedBatches:
        """Return the batches of one small fetch."""
        self._known()
        with self.brokers.node(self._leader(partition)) as connection:
            connection.send(self._fetch(connection, partition, at, at))
            records = self._answer(connection, partition, at, at).records
        return scanned(records, Place(self.name, str(partition)))

    def _check_not_truncated(self, partition: int, start: int) -> None:
        """Check that what was read here up to `start` is still what the leader has before it (KIP-320)."""
        seen = self._seen.get(partition)
        if seen is None or seen.upto != start or seen.epoch < 0:
            return
        if self._known().leaders.get(partition, (-1, seen.epoch))[1] == seen.epoch:
            return
        ended = self._epoch_end(partition, seen.epoch)
        if 0 <= ended < start:
            raise OffsetsBeyondEnd(self.name, str(partition), read=start, end=ended)

    def _epoch_end(self, partition: int, epoch: int) -> int:
        """Return the offset at which an epoch of leaders ended; -1 where the broker cannot tell."""
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        leader = self._known().leaders[partition]
        wanted = topic.OffsetForLeaderPartition(partition=partition, current_leader_epoch=leader[1], leader_epoch=epoch)
        with self.brokers.node(self._leader(partition)) as connection:
            answer = connection.ask(
                OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=self.name, partitions=[wanted])])
            )
        found = answer.topics[0].partitions[0]
        self.brokers.check(found.error_code, f"read {self._about(partition)}")
        return int(found.end_offset)
