"""Errors of Kafka's clients -> errors of ours: what may pass, and what somebody must mend.

Both clients report Kafka's own numbers of errors; librdkafka has negative ones for what it notices itself. No text of
theirs contains an option's value, so no secret gets into a message.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from kafka import errors as protocol_errors

from headrace.base.broker_errors import BrokerFailed, LoginRefused, RecordTooLarge, TopicMissing, TopicRefused
from headrace.base.errors import HeadraceError, InvalidOption
from headrace.base.outside import AccessRefused, Fenced, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.kafka.address import KafkaAddress

logger = logging.getLogger("headrace.kafka")

_NO_LOGIN = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.SECURITY_DISABLED,
    KafkaError.DELEGATION_TOKEN_EXPIRED,
    KafkaError._SSL,
}
_NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "the delegation token",
}
_NO_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_REFUSED_TOPIC = {
    KafkaError.INVALID_PARTITIONS: "Change the number of partitions.",
    KafkaError.INVALID_REPLICATION_FACTOR: "Change replication=… in the address: at most as many as brokers.",
    KafkaError.INVALID_CONFIG: "Change the setting.",
    KafkaError.POLICY_VIOLATION: "Ask who runs the cluster what its policy allows.",
    KafkaError.TOPIC_EXCEPTION: "Take another name, or prefix= in the address.",
}
"""What to change where a topic is not created."""
FENCED = {
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError._FENCED,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
}
"""A newer producer has the transactional id; or the broker ended a transaction that lasted too long."""
_PASSES = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._QUEUE_FULL,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._DESTROY_BROKER,
    KafkaError._CRIT_SYS_RESOURCE,
    KafkaError._IN_PROGRESS,
    KafkaError._PREV_IN_PROGRESS,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_CONTROLLER,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
    KafkaError.REASSIGNMENT_IN_PROGRESS,
    KafkaError.STALE_BROKER_EPOCH,
    KafkaError.OPERATION_NOT_ATTEMPTED,
    # after these a transaction is aborted, and its epoch is written anew by a new producer
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.TRANSACTION_ABORTABLE,
    KafkaError._INCONSISTENT,
    KafkaError._GAPLESS_GUARANTEE,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_UNKNOWN_OPTIONS = {KafkaError._INVALID_ARG, KafkaError._NOENT}


def failure(code: int, text: str, address: KafkaAddress, *, doing: str) -> HeadraceError:
    """Return the error that a number of Kafka's means.

    Args:
        code: Kafka's number, or a negative one of librdkafka's.
        text: what the client says about it.
        address: the cluster; only its servers are shown.
        doing: what was being done: `write to the topic "orders"`.

    """
    at, text = f"Kafka at {address.servers}", text.rstrip(".")
    if code in _NO_LOGIN:
        return LoginRefused(
            f"{at} does not accept the login",
            detail=f"While trying to {doing}: {text}.",
            hint="Check security.protocol, sasl.mechanism, sasl.username and sasl.password of the address; "
            "a password can come from the environment: sasl.password=env:NAME.",
        )
    if code in _NOT_ALLOWED:
        return AccessRefused(
            f"{at} does not allow this user to {doing}",
            detail=f"It refuses access to {_NOT_ALLOWED[code]}: {text}.",
            hint="Ask who runs the cluster for the rights that docs/kafka.md lists, then start again.",
        )
    if code in _NO_TOPIC:
        return TopicMissing(
            f"{at} cannot {doing}: there is no such topic or partition",
            detail=f"{text}.",
            hint="Check the name and the address's prefix: headrace topics list --at kafka://HOST:PORT.",
        )
    if code in _REFUSED_TOPIC:
        return TopicRefused(f"{at} refuses to {doing}: {text}", hint=_REFUSED_TOPIC[code])
    if code in FENCED:
        return Fenced(f"with topics at {address.servers}", by="it opened a newer transaction")
    if code in _TOO_LARGE:
        return RecordTooLarge(f"{at} did not {doing}: a record is larger than the topic takes", hint=_LARGER)
    if code in _PASSES:
        return Unavailable(f"{at} did not {doing}: {text}", hint=_ANSWERS)
    return BrokerFailed(f"{at} did not {doing}: {text} (error {code})", hint=_HINTS.get(code, ""))


_FAR = (
    "A record's time is its row's event time. Let the topic take times that far from now: kafka-configs --alter "
    "--entity-type topics --entity-name TOPIC --add-config message.timestamp.before.max.ms=9223372036854775807,"
    "message.timestamp.after.max.ms=9223372036854775807."
)
_LARGER = (
    "Let the topic take it: kafka-configs --alter --entity-type topics --entity-name TOPIC "
    "--add-config max.message.bytes=BYTES."
)
_HINTS = {
    KafkaError.INVALID_TIMESTAMP: _FAR,
    KafkaError.INVALID_RECORD: "A compacted topic takes no record without a key: headrace topics produce --key.",
}
_ANSWERS = "Check that the cluster runs and that the address is right; it is tried again."


@contextmanager
def our_errors(address: KafkaAddress, *, doing: str, heard: Heard | None = None) -> Iterator[None]:
    """Raise errors of librdkafka and kafka-python as ours.

    Args:
        address: the cluster.
        doing: what is being done, after "did not".
        heard: what the client has reported on the side: a refused login shows itself as silence otherwise.

    """
    try:
        yield
    except KafkaException as error:
        raise of_librdkafka(error, address, doing=doing, heard=heard) from error
    except protocol_errors.KafkaError as error:
        raise of_kafka_python(error, address, doing=doing) from error
    if heard is not None:
        heard.forget()


def of_librdkafka(
    error: KafkaException, address: KafkaAddress, *, doing: str, heard: Heard | None = None
) -> HeadraceError:
    """Return an error of librdkafka as one of ours."""
    if heard is not None:
        heard.listen()
    inner = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else None
    if inner is None:
        return BrokerFailed(f"Kafka at {address.servers} did not {doing}: {error}")
    code, text = inner.code(), inner.str()
    if code in _UNKNOWN_OPTIONS and any(word in text.lower() for word in _OF_OPTIONS):
        return InvalidOption(f"an option of the address {address} is not possible: {text}", hint=_OPTIONS)
    if heard is not None and code in _PASSES | {KafkaError._FATAL} and heard.worst is not None:
        code, text = heard.worst.code(), heard.worst.str()
    passes = code not in (_NO_LOGIN | FENCED) and (inner.retriable() or inner.txn_requires_abort())
    found = failure(code, text, address, doing=doing)
    if passes and isinstance(found, BrokerFailed):
        found = Unavailable(found.what, hint=_ANSWERS)
    if isinstance(found, Unavailable) and heard is not None and heard.last:
        found.detail = f"The last report of its client: {heard.last}."
    return found


_OF_OPTIONS = ("configuration", "property", "failed to create", "expected ")
"""What librdkafka says only where an option is wrong."""
_OPTIONS = "Options are librdkafka's, and prefix and replication. See docs/kafka.md."


def of_kafka_python(error: protocol_errors.KafkaError, address: KafkaAddress, *, doing: str) -> HeadraceError:
    """Return an error of kafka-python as one of ours."""
    text = str(error) or type(error).__name__
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return failure(number, text, address, doing=doing)
    return Unavailable(f"Kafka at {address.servers} did not {doing}: {text}", hint=_ANSWERS)


class _Reports:
    """The last reports of a client: it holds this, and this does not hold it, so that it ends with its owner."""

    def __init__(self) -> None:
        self.worst: KafkaError | None = None
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        """Take note of a report."""
        if error.code() in _NO_LOGIN:
            self.worst = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error.str()
        logger.debug("%s", error.str())


class Heard:
    """What a client of librdkafka reports on the side; pass `options()` to it.

    It goes on trying after a refused login, so its calls time out: what it reported meanwhile is the reason.
    """

    def __init__(self) -> None:
        self._reports = _Reports()
        self.client: Any = None
        """The client, once there is one."""

    @property
    def worst(self) -> KafkaError | None:
        """The last report of a refused login; None where there is none."""
        return self._reports.worst

    @property
    def last(self) -> str:
        """The last report of any kind."""
        return self._reports.last

    def options(self) -> dict[str, Any]:
        """Return the options of a new client that reports to this; what another one has reported is forgotten."""
        self._reports = _Reports()
        return {"error_cb": self._reports, "log_level": 0}  # what it would print to stderr, it also reports here

    def forget(self) -> None:
        """Forget that a login was refused: a call has worked since, and what fails later has another reason."""
        self._reports.worst = None

    def listen(self) -> None:
        """Hear what the client has to report: it does so only when it is polled."""
        if self.client is not None:
            with suppress(KafkaException):  # a producer that is beyond help says so again
                self.client.poll(0)
