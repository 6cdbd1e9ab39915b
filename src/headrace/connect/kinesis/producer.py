"""Out: rows become records of a stream, in the order of their partition keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from headrace.base.broker_errors import BrokerFailed, MessageTooLarge
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.connect.kinesis.service import KinesisService
from headrace.connect.messages.writing import MessageSink, MessageWriter, Outgoing, WritingOptions, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.sink import SinkWriter

MOST_RECORDS, MOST_BYTES = 500, 4_500_000
"""What one request may have."""
MOST_RECORD = 1 << 20
TRIES = 10
FIRST_SECONDS = 0.05


def records(
    stream: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    profile: str | None = None,
    **options: Unpack[WritingOptions],
) -> KinesisRecords:
    """Return a sink whose rows are records of a stream of Amazon Kinesis: at least once, in order by key.

    The partition key is the message's key; without one records are spread. Records have no place for ids and headers:
    a receiver recognises repetitions by what is in the body.

    Args:
        stream: its name or ARN.
        region: of Amazon; that of the environment or the profile by default.
        endpoint: another address than Amazon's.
        profile: of the shared credentials; credentials are otherwise those of the environment or a role.
        options: as all brokers have, but `headers`.

    Raises:
        InvalidPlan: an option is not known, or `headers` is given.
        InvalidArgument: there is no stream.

    """
    if options.get("headers"):
        raise InvalidPlan("records of Kinesis have no headers", hint="Put the columns into the body.")
    service = KinesisService(stream=stream, region=region, endpoint=endpoint, profile=profile)
    return KinesisRecords(service=service, how=writing(stream, options))


@dataclass(frozen=True, kw_only=True)
class KinesisRecords(MessageSink):
    """Records of a stream; `records` creates it."""

    service: KinesisService

    @property
    def where(self) -> str:
        """The stream."""
        return self.service.place

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app."""
        return f"kinesis:{self.service.stream}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer."""
        return _Writer(self, writer, clock)


class _Writer(MessageWriter[KinesisRecords]):
    """Sends epochs."""

    def __init__(self, sink: KinesisRecords, writer: str, clock: Clock) -> None:
        super().__init__(sink, writer)
        self.clock = clock
        self.client: Any = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's records; they are stored when it returns."""
        del epoch
        self.client = self.client or self.sink.service.client()
        for some in messages:
            for request in _requests(some):
                self._send(request)

    def drop(self) -> None:
        """Keep the client: each request stands for itself."""

    def close(self) -> None:
        """Close connections."""
        if self.client is not None:
            self.client.close()
            self.client = None

    def _send(self, messages: Sequence[Outgoing]) -> None:
        """Send records with one request, and those that Kinesis refuses for a while with others."""
        waiting, why = list(messages), ""
        for attempt in range(TRIES):
            if attempt:
                self.clock.sleep(FIRST_SECONDS * 2**attempt)
            answers = self._asked(waiting)
            failed = [(each, answer) for each, answer in zip(waiting, answers, strict=True) if answer.get("ErrorCode")]
            if not failed:
                return
            waiting = [each for each, _ in failed]
            why = f"{failed[0][1]['ErrorCode']}: {failed[0][1].get('ErrorMessage', '')}"
        raise Unavailable(f"{self.sink.where} refuses {len(waiting)} records of {len(messages)}: {why}")

    def _asked(self, messages: Sequence[Outgoing]) -> Sequence[dict[str, Any]]:
        some = [{"Data": each.body, "PartitionKey": _key(each)} for each in messages]
        try:
            with self.sink.service.failures():
                answer: dict[str, Any] = self.client.put_records(**self.sink.service.named, Records=some)
        except BrokerFailed as error:
            largest = max(messages, key=lambda each: len(each.body))
            if len(largest.body) < MOST_RECORD - len(_key(largest)):
                raise
            most = "records of 1 MiB with their keys, if the stream is not set to more"
            raise MessageTooLarge(self.sink.where, id=largest.id, size=len(largest.body), most=most) from error
        found: Sequence[dict[str, Any]] = answer["Records"]
        return found


def _key(message: Outgoing) -> str:
    """Return the partition key, 256 characters at most: a longer one is cut."""
    return ((message.key or b"").decode(errors="replace") or message.id)[:256]


def _requests(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Yield what each request has: a key once, since the order of what is tried again is lost within a request."""
    waiting = list(messages)
    while waiting:
        keys, request, later, size = set[str](), list[Outgoing](), list[Outgoing](), 0
        for each in waiting:
            key, bytes_ = _key(each), len(each.body) + 256
            fits = not request or (len(request) < MOST_RECORDS and size + bytes_ <= MOST_BYTES)
            if key in keys or not fits:
                later.append(each)
            else:
                request.append(each)
                size += bytes_
            keys.add(key)
        yield request
        waiting = later
