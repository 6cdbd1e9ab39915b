"""Where a STOMP broker is: `stomp://user:password@host:port/vhost`, or `stomp+ssl://`; and its errors as ours."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.broker_errors import LoginRefused, QueueMissing
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.tls import secured_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.messages.address import BrokerAddress

TLS = "stomp+ssl"
SCHEMES = ("stomp", TLS)
PORT, TLS_PORT = 61613, 61612
_LOGIN = re.compile(r"password|passcode|security error|bad connect|access refused", re.IGNORECASE)
_ACCESS = re.compile(r"not authorized|permission|security|access.?refused|AMQ229032|AMQ229213", re.IGNORECASE)
_MISSING = re.compile(r"does not exist|not.?found|AMQ339001|AMQ339016.*exist", re.IGNORECASE)


class BrokerSaid(Exception):
    """An ERROR frame of the broker; `connecting`: it was the answer to CONNECT."""

    def __init__(self, said: str, *, connecting: bool) -> None:
        super().__init__(said)
        self.connecting = connecting


def address_of(url: str) -> BrokerAddress:
    """Return the address that a text names.

    Raises:
        InvalidPlan: it is none, or has an option that is not known.

    """
    return secured_address(url, schemes=SCHEMES, example="stomp://ada:env:STOMP_PASSWORD@localhost:61613")


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
        Unavailable: the broker does not answer, or refuses it for another reason, which may pass.

    """
    try:
        yield
    except BrokerSaid as error:
        said = address.hidden(str(error))
        if error.connecting and _LOGIN.search(said):
            raise LoginRefused(
                f"{where} refuses the login: {said}",
                hint="Put the right user and password into the address: stomp://user:env:NAME@host takes the password "
                "from the environment variable NAME.",
            ) from error
        if _MISSING.search(said):
            raise QueueMissing(f"{where} is not there: {said}", hint=create) from error
        if _ACCESS.search(said):
            raise AccessRefused(
                f"{where} refuses the user: {said}", hint="Allow it to send, to consume, or to create a durable queue."
            ) from error
        raise Unavailable(f"{where} refuses a request: {said}") from error
    except OSError as error:
        raise Unavailable(f"{where} does not answer: {type(error).__name__}: {error}") from error
