"""TLS to brokers, as options of their addresses: `?ca=FILE`, `?certificate=FILE&key=FILE`."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.connect.messages.address import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS = frozenset({"ca", "certificate", "key"})
"""`ca`: the authorities to trust, the system's by default. `certificate` and `key`: with what this client shows who
it is. All are files in PEM."""


def tls_context(address: BrokerAddress) -> ssl.SSLContext:
    """Return how a connection is encrypted: the broker's certificate and name are always checked.

    Raises:
        InvalidPlan: a file is not there, or is no such file.

    """
    options = address.options
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "certificate" in options:
            context.load_cert_chain(options["certificate"], options.get("key"))
    except (OSError, ValueError) as error:  # ssl's errors are an OSError
        raise InvalidPlan(f"TLS to {address.place} cannot be set up: {error}") from error
    return context


def secured_address(
    url: str, *, schemes: Sequence[str], example: str, more: frozenset[str] = frozenset()
) -> BrokerAddress:
    """Return the address that a text names; its options are those of TLS and `more`.

    Raises:
        InvalidPlan: it is none, or has other options.

    """
    address = BrokerAddress.parse(url, schemes=schemes, example=example)
    known = OPTIONS | more
    if unknown := sorted(set(address.options) - known):
        raise InvalidPlan(
            f"the address of {address.place} has options that are not known: {', '.join(unknown)}",
            detail=f"Known are: {', '.join(sorted(known))}.",
        )
    return address
