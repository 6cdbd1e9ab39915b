"""Where a RabbitMQ is: `amqp://user:password@host:port/vhost`, or `amqps://` with TLS; and its failures as ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pika
from pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.tls import secured_address, tls_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.base.blame import HeadraceError
    from headrace.connect.messages.address import BrokerAddress

SCHEMES = ("amqp", "amqps")
SECONDS = 15
_PORTS = {"amqp": 5672, "amqps": 5671}
_ACCESS_REFUSED, _NOT_FOUND, _PRECONDITION_FAILED, _NOT_ALLOWED = 403, 404, 406, 530


def address_of(url: str) -> BrokerAddress:
    """Return the address that a text names.

    Raises:
        InvalidPlan: it is none, or has an option that is not known.

    """
    return secured_address(url, schemes=SCHEMES, example="amqp://guest:guest@localhost/")


def parameters(address: BrokerAddress, *, heartbeat: int) -> pika.ConnectionParameters:
    """Return what pika connects with.

    Args:
        address: the broker.
        heartbeat: seconds; 0: none.

    Raises:
        InvalidPlan: a variable of the environment is not there, or a file of TLS.

    """
    login = address.login(user="guest", password="guest")  # noqa: S106 -- RabbitMQ's own default
    tls = pika.SSLOptions(tls_context(address), address.host) if address.scheme == "amqps" else None
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port(_PORTS[address.scheme]),
        virtual_host=address.path or "/",
        credentials=pika.PlainCredentials(login.user, login.password),
        ssl_options=tls,
        heartbeat=heartbeat,
        socket_timeout=SECONDS,
        stack_timeout=SECONDS,
        blocked_connection_timeout=4 * SECONDS,
        client_properties={"connection_name": "headrace"},
    )


@contextmanager
def failures(where: str, address: BrokerAddress, *, create: str) -> Iterator[None]:
    """Turn errors of the client into ours.

    Raises:
        HeadraceError: see `ours`.

    """
    try:
        yield
    except (AMQPError, OSError) as error:
        raise ours(error, where, address, create=create) from error


def ours(error: BaseException, where: str, address: BrokerAddress, *, create: str) -> HeadraceError:
    """Return the error of ours for one of the client: `Unavailable` where it may pass.

    `LoginRefused`, `AccessRefused`: user, password, virtual host or rights are wrong. `QueueMissing`: what is used is
    not there; `create` says how to make it. `BrokerFailed`: the broker refuses it for another reason.
    """
    said = address.hidden(f"{type(error).__name__}: {error}".rstrip(": "))
    code = error.reply_code if isinstance(error, ChannelClosedByBroker | ConnectionClosedByBroker) else 0
    if isinstance(error, AuthenticationError | ProbableAuthenticationError):
        return LoginRefused(
            f"{where} refuses the login: {said}",
            hint="Put the right user and password into the address: amqp://user:env:NAME@host/ takes the password from "
            "the environment variable NAME. The user guest may log in on the broker's own machine only.",
        )
    if isinstance(error, ProbableAccessDeniedError) or code == _NOT_ALLOWED:
        return LoginRefused(
            f"{where} refuses the virtual host: {said}",
            hint="What follows the host in the address names it: amqp://host/ is the virtual host /. "
            "rabbitmqctl list_vhosts shows those that exist, rabbitmqctl set_permissions allows a user to use one.",
        )
    if code == _ACCESS_REFUSED:
        return AccessRefused(
            f"{where} refuses the user: {said}", hint="rabbitmqctl set_permissions allows a user to read and write."
        )
    if code == _NOT_FOUND:
        return QueueMissing(f"{where} is not there: {said}", hint=create)
    if code == _PRECONDITION_FAILED and "timed out" not in said:  # an acknowledgement that takes too long passes
        return BrokerFailed(f"{where} refuses a request: {said}")
    return Unavailable(f"{where} does not answer: {said}")
