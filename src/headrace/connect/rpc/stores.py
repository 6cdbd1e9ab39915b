"""Which store of topics an address names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.connect.kafka.address import KafkaAddress, is_address
from headrace.connect.rpc.embedded import LogExchange
from headrace.log import Log

if TYPE_CHECKING:
    from headrace.connect.rpc.exchange import Exchange

_SCHEME = "log:"


def exchange_of(topics: str | Path | Log) -> Exchange:
    """Return the store of `topics`: a log, its path, `"log:PATH"`, or `"kafka://host:port"`.

    Raises:
        InvalidPlan: it is no such place.
        ExtraMissing: Kafka's client is not installed.

    """
    if isinstance(topics, Log):
        return LogExchange(Log(topics.path, clock=topics.clock, fsync=topics.fsync))
    if isinstance(topics, str) and is_address(topics):
        from headrace.connect.rpc.kafka import KafkaExchange  # its client is an extra

        return KafkaExchange(KafkaAddress.parse(topics))
    if isinstance(topics, str | Path) and str(topics):
        return LogExchange(Log(Path(str(topics).removeprefix(_SCHEME))))
    raise InvalidPlan(f"{topics!r} is not a place for topics", hint='Say "log:PATH", a path, or "kafka://host:port".')
