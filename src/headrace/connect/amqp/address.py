"""Where an AMQP 1.0 broker is: `amqp://user:password@host:port`, or `amqps://`; and its refusals as errors of ours."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.tls import secured_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.messages.address import BrokerAddress

TLS = "amqps"
PORTS = {"amqp": 5672, TLS: 5671}
NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"
_MISSING = re.compile(r"does not exist|AMQ119002|AMQ119010")
_ACCESS = re.compile(r"does not have permission|not authorized|AMQ229032|AMQ119015")
"""What Artemis says where its condition is a general one."""
_NEVER = frozenset({"amqp:not-implemented", "amqp:invalid-field", "amqp:precondition-failed"})
"""Conditions that do not pass by themselves."""


class Refused(Exception):
    """What a broker refuses: its condition, and what it says; `connecting`: it refuses the login."""

    def __init__(self, condition: str, said: str, *, connecting: bool = False) -> None:
        super().__init__(": ".join(filter(None, [condition, said[:1_000]])))
        self.condition, self.connecting = condition, connecting


def address_of(url: str) -> BrokerAddress:
    """Return the address that a text names.

    Raises:
        InvalidPlan: it is none, or has an option that is not known.

    """
    return secured_address(url, schemes=tuple(PORTS), example="amqp://ada:env:AMQP_PASSWORD@localhost:5672")


@contextmanager
def failures(where: str, address: BrokerAddress, *, create: str) -> Iterator[None]:
    """Turn failures of a connection into errors of ours.

    Args:
        where: what the errors call the broker and what is used there.
        address: the broker.
        create: how to make what is missing.

    Raises:
        LoginRefused: user or password are wrong.
        AccessRefused: the user may not do this.
        QueueMissing: what is used is not there.
        BrokerFailed: the broker does not have what is asked for, such as transactions.
        Unavailable: the broker does not answer, or refuses it for another reason, which may pass.

    """
    try:
        yield
    except Refused as error:
        said = address.hidden(str(error))
        if error.connecting and error.condition == UNAUTHORIZED:
            raise LoginRefused(
                f"{where} refuses the login: {said}",
                hint="Put the right user and password into the address: amqp://user:env:NAME@host takes the password "
                "from the environment variable NAME.",
            ) from error
        if error.condition == NOT_FOUND or _MISSING.search(said):
            raise QueueMissing(f"{where} is not there: {said}", hint=create) from error
        if error.condition == UNAUTHORIZED or _ACCESS.search(said):
            raise AccessRefused(
                f"{where} refuses the user: {said}", hint="Allow it to send, to consume, or to create a durable queue."
            ) from error
        if error.condition in _NEVER:
            raise BrokerFailed(f"{where} refuses a request: {said}") from error
        raise Unavailable(f"{where} refuses a request: {said}") from error
    except OSError as error:
        raise Unavailable(f"{where} does not answer: {type(error).__name__}: {error}") from error
