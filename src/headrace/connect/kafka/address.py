"""Where a cluster is, and how to log in: `kafka://host:port[,host:port]?option=value&option=value`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "kafka://"
PORT = "9092"
_SECRETS = ("password", "secret", "token", "key.pem", "jaas", "credential", "oauthbearer.config")
_FROM_ENVIRONMENT = "env:"


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A Kafka cluster, as the text `kafka://host:port,host:port?option=value`.

    Options are librdkafka's (`security.protocol=SASL_SSL`, `sasl.username=…`), percent-encoded where a URL needs it.
    A value `env:NAME` is that of the environment variable when a connection is opened, in each process: so no secret
    stands in a program or a plan. Two options are ours: `prefix` stands before the name of each topic in the
    cluster, and `replication` is the number of copies of topics that are created.

    `servers` is "host:port,host:port". Printing an address shows no secrets.
    """

    servers: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    prefix: str = ""
    replication: int | None = None

    @staticmethod
    def parse(text: str) -> KafkaAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none.

        """
        if not isinstance(text, str) or not text.startswith(SCHEME):
            raise InvalidPlan(
                f"{text!r} is no address of a Kafka cluster", hint='For example "kafka://localhost:9092".'
            )
        place, _, query = text.removeprefix(SCHEME).partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=False))
        if query.count("&") + bool(query) != len(options):
            raise InvalidPlan(
                "the options of a Kafka address are not name=value, or one is there twice",
                hint='For example "kafka://host:9093?security.protocol=SSL&ssl.ca.location=ca.pem".',
            )
        prefix, copies = options.pop("prefix", ""), options.pop("replication", None)
        if prefix:
            check_topic(prefix)
        if copies is not None and not (copies.isdecimal() and int(copies) > 0):
            raise InvalidPlan(f"replication={copies!r} is not possible", hint="Give a number above zero.")
        servers = ",".join(_server(each) for each in place.rstrip("/").split(","))
        return KafkaAddress(servers, tuple(sorted(options.items())), prefix, None if copies is None else int(copies))

    def configuration(self) -> dict[str, str]:
        """Return librdkafka's options, values of the environment included: do not print it.

        Raises:
            InvalidPlan: a variable of the environment is missing.

        """
        found = {"bootstrap.servers": self.servers}
        for name, value in self.options:
            variable = value.removeprefix(_FROM_ENVIRONMENT)
            if variable != value and variable not in os.environ:
                raise InvalidPlan(f"{name}={value}: the environment has no variable {variable}", hint="Set it.")
            found[name] = value if variable == value else os.environ[variable]
        return found

    def cluster_name(self, topic: str) -> str:
        """Return the name of a topic of ours in the cluster."""
        return f"{self.prefix}{topic}"

    def text(self) -> str:
        """Return the text that `parse` takes, secrets included: do not print it."""
        ours = {"prefix": self.prefix or None, "replication": self.replication}
        options = {**dict(self.options), **{name: str(value) for name, value in ours.items() if value is not None}}
        return f"{SCHEME}{self.servers}{_query(options)}"

    def __str__(self) -> str:
        options = {name: "***" if is_secret(name, value) else value for name, value in self.options}
        return f"{SCHEME}{self.servers}{_query(options | ({'prefix': self.prefix} if self.prefix else {}))}"


def is_address(text: str | None) -> bool:
    """Whether a text is meant as the address of a cluster."""
    return isinstance(text, str) and text.startswith(SCHEME)


def is_secret(option: str, value: str) -> bool:
    """Whether an option's value must not be shown; the name of an environment variable may."""
    return any(part in option for part in _SECRETS) and not value.startswith(_FROM_ENVIRONMENT)


def _server(text: str) -> str:
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.strip().endswith("]"):  # no port; the latter is an IPv6 address
        host, port = text.strip(), PORT
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16 or any(letter in host for letter in "@/ "):
        raise InvalidPlan(
            f"{text!r} is no server of a Kafka cluster",
            hint='Say host:port, for example "kafka://localhost:9092"; credentials are options: ?sasl.username=…',
        )
    return f"{host}:{port}"


def _query(options: Mapping[str, str]) -> str:
    return "?" + "&".join(f"{name}={quote(value, safe='*:/.,')}" for name, value in options.items()) if options else ""
