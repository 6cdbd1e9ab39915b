"""What the fast reader needs to know of an address, and whether it covers the address at all."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_READ = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "client.id",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "socket.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "fetch.message.max.bytes",
        "max.partition.fetch.bytes",
        "receive.message.max.bytes",
    }
)
_OF_WRITERS = frozenset(
    {
        "acks",
        "request.required.acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.timeout.ms",
        "retries",
        "transaction.timeout.ms",
    }
)
"""Options that change nothing for a reader."""


@dataclass(frozen=True, slots=True)
class WireSettings:
    """How to connect: servers as (host, port), encryption, login, and limits. Times are seconds, sizes bytes."""

    servers: tuple[tuple[str, int], ...]
    client: str = "headrace"
    mechanism: str | None = None
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    connect_timeout: float = 10.0
    timeout: float = 30.0
    fetch_bytes: int = 16 << 20
    frame_bytes: int = 1 << 30


def uncovered(options: Mapping[str, str]) -> str | None:
    """Return why the fast reader cannot serve these options of librdkafka, or None where it can."""
    for name in sorted(options):
        if name not in _READ | _OF_WRITERS:
            return f"the option {name}"
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        return f"security.protocol={protocol}"
    mechanism = _mechanism(options)
    if protocol.startswith("SASL") and mechanism not in MECHANISMS:
        return f"sasl.mechanism={mechanism}"
    return None


def wire_settings(options: Mapping[str, str]) -> WireSettings:
    """Return the settings that options of librdkafka mean; `uncovered` says None of them.

    Raises:
        InvalidPlan: a file with certificates or a key cannot be read; a number is none.

    """
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    login = protocol.startswith("SASL")
    servers = tuple(_server(each) for each in options["bootstrap.servers"].split(","))
    return WireSettings(
        servers=servers,
        client=options.get("client.id", "headrace"),
        mechanism=_mechanism(options) if login else None,
        username=options.get("sasl.username", ""),
        password=options.get("sasl.password", ""),
        tls=_tls(options) if protocol.endswith("SSL") else None,
        connect_timeout=_number(options, ("socket.connection.setup.timeout.ms",), 10_000) / 1_000,
        timeout=_number(options, ("socket.timeout.ms",), 30_000) / 1_000,
        fetch_bytes=_number(options, ("max.partition.fetch.bytes", "fetch.message.max.bytes"), 16 << 20),
        frame_bytes=_number(options, ("receive.message.max.bytes",), 1 << 30),
    )


def _number(options: Mapping[str, str], names: Sequence[str], default: int) -> int:
    for name in names:
        if name in options:
            if not options[name].isdecimal():
                raise InvalidPlan(f"{name}={options[name]} of a Kafka address is no number")
            return int(options[name])
    return default


def _mechanism(options: Mapping[str, str]) -> str:
    return options.get("sasl.mechanism", options.get("sasl.mechanisms", "GSSAPI")).upper()


def _server(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return _context(options)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(f"{name}={options[name]}" for name in sorted(options) if name.endswith(".location"))
        raise InvalidPlan(f"certificates or a key of Kafka cannot be read: {error}", detail=f"{files}.") from error


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
    if options.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "ssl.certificate.location" in options:
        context.load_cert_chain(
            options["ssl.certificate.location"],
            options.get("ssl.key.location"),
            options.get("ssl.key.password"),
        )
    return context
