"""A connection to Pulsar: its address, its client, and its failures as ours."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pulsar

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.errors import InvalidArgument
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.tls import secured_address
from headrace.connect.pulsar.greeting import PORT, TLS_PORT, authentication, greeted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.connect.messages.address import BrokerAddress

ANSWER_SECONDS = 10
EXAMPLE = "pulsar://:env:PULSAR_TOKEN@localhost:6650"
LISTENER = "listener"
_LATER = (
    *(pulsar.Timeout, pulsar.ConnectError, pulsar.NotConnected, pulsar.AlreadyClosed, pulsar.ServiceUnitNotReady),
    *(pulsar.LookupError, pulsar.TooManyLookupRequestException, pulsar.BrokerMetadataError, pulsar.Interrupted),
    *(pulsar.BrokerPersistenceError, pulsar.ConsumerBusy, pulsar.ProducerBusy, pulsar.ProducerQueueIsFull),
    *(pulsar.ProducerBlockedQuotaExceededError, pulsar.ProducerBlockedQuotaExceededException, pulsar.ReadError),
    *(pulsar.ChecksumError, pulsar.MemoryBufferIsFull, pulsar.UnknownError),
)


def pulsar_address(url: str) -> BrokerAddress:
    """Return the address of a broker or proxy.

    Raises:
        InvalidPlan: it is none, or has an option that is not known.

    """
    return secured_address(url, schemes=("pulsar", "pulsar+ssl"), example=EXAMPLE, more=frozenset({LISTENER}))


def check_topic(topic: str) -> str:
    """Return the name of a topic.

    Raises:
        InvalidArgument: it is none, or its messages are not stored.

    """
    name = topic.removeprefix("persistent://")
    if not name or "://" in name or set(name) & set(" \t\r\n"):
        raise InvalidArgument(f"{topic!r} is no topic of Pulsar that keeps its messages")
    return topic


class Session:
    """A connection.

    Args:
        address: a broker, or one of a cluster.

    Raises:
        Unavailable: it does not answer.
        LoginRefused: it does not accept the token, or user and password.

    """

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address
        self.largest = greeted(address)
        """How many bytes a message may have."""
        self.client: Any = pulsar.Client(_service(address), **_options(address))

    def partitions(self, topic: str) -> Sequence[str]:
        """Return the names of a topic's partitions; of a topic without any its own."""
        with self.failures(topic):
            found: list[str] = self.client.get_topic_partitions(topic)
            return found

    @contextmanager
    def failures(self, topic: str) -> Iterator[None]:
        """Turn errors of the client into ours.

        Raises:
            Unavailable: the broker does not answer, or somebody else has the name that is used.
            QueueMissing: there is no such topic, and none is created.
            LoginRefused, AccessRefused: the token, user or password is wrong or has too few rights.
            BrokerFailed: it refuses.

        """
        try:
            yield
        except pulsar.PulsarException as error:
            raise self.ours(error, topic) from error

    def ours(self, error: Exception | None, topic: str, said: str = "") -> Exception:
        """Return an error of the client as ours; `said` is what it says, where there is no exception."""
        place, name = self.address.place, said or type(error).__name__
        if isinstance(error, pulsar.TopicNotFound | pulsar.SubscriptionNotFound):
            create = f"Create it: pulsar-admin topics create {topic}; then start again."
            return QueueMissing.named("topic", topic, where=place, create=create)
        if isinstance(error, pulsar.AuthenticationError):
            return LoginRefused(f"{place} refuses the login", hint="Check the token, or user and password.")
        if isinstance(error, pulsar.AuthorizationError):
            hint = "pulsar-admin namespaces grant-permission --actions produce,consume --role USER NAMESPACE"
            return AccessRefused(f"{place} does not let the user use the topic {topic}", hint=hint)
        if isinstance(error, pulsar.ConsumerBusy | pulsar.ProducerBusy):
            return Unavailable(f"{topic} at {place} is used by another process under the same name ({name})")
        if error is None or isinstance(error, _LATER):
            return Unavailable(f"{place} does not answer for {topic}: {name}")
        return BrokerFailed(f"{place} refuses a request for {topic}: {name}: {self.address.hidden(str(error))}")

    def close(self) -> None:
        """Close the connection, with all that uses it."""
        with suppress(pulsar.PulsarException):
            self.client.close()


def _service(address: BrokerAddress) -> str:
    port = address.port(TLS_PORT if address.scheme.endswith("+ssl") else PORT)
    return f"{address.scheme}://{address.host}:{port}"


def _options(address: BrokerAddress) -> dict[str, Any]:
    method, secret = authentication(address)
    known = address.options
    trusted = known.get("ca") or ssl.get_default_verify_paths().cafile
    options: dict[str, Any] = {
        "operation_timeout_seconds": ANSWER_SECONDS,
        "logger": pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),  # else it prints
        "tls_trust_certs_file_path": trusted,
        "tls_validate_hostname": True,
        "listener_name": known.get(LISTENER),
    }
    if "certificate" in known:
        options["tls_certificate_file_path"], options["tls_private_key_file_path"] = known["certificate"], known["key"]
    if method == "basic":
        user, _, password = secret.partition(":")
        options["authentication"] = pulsar.AuthenticationBasic(user, password)
    elif method == "token":
        options["authentication"] = pulsar.AuthenticationToken(secret)
    elif method == "tls":
        options["authentication"] = pulsar.AuthenticationTLS(known["certificate"], known["key"])
    return options
