"""Where a Service Bus is: a connection string, as Azure's portal shows it; and its client's errors as ours."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.connect.messages.address import FROM_ENVIRONMENT, secret

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXAMPLE = "env:SERVICEBUS_CONNECTION_STRING"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace. Printing it shows no key; a connection string `env:NAME` is that of the environment variable."""

    connection_string: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> Namespace:
        """Return the namespace that a text names.

        Raises:
            InvalidPlan: it names none.

        """
        if not isinstance(text, str) or not (text.startswith(FROM_ENVIRONMENT) or "endpoint=" in text.lower()):
            raise InvalidPlan("this is no connection string of a Service Bus", hint=f'For example "{_EXAMPLE}".')
        return Namespace(text)

    @property
    def place(self) -> str:
        """What people call it, without keys: its host, or the variable that has it."""
        if self.connection_string.startswith(FROM_ENVIRONMENT):
            return f"${self.connection_string.removeprefix(FROM_ENVIRONMENT)}"
        return self._part("endpoint").removeprefix("sb://").strip("/")

    def client(self) -> ServiceBusClient:
        """Return a client that does not retry: whoever calls does.

        Raises:
            InvalidPlan: the variable of the environment is not there, or has no connection string.

        """
        text = secret(self.connection_string, of="the connection string of the Service Bus")
        try:
            return ServiceBusClient.from_connection_string(text, retry_total=0)
        except ValueError as error:
            raise InvalidPlan(f"{self.place} is no connection string of a Service Bus: {error}") from error

    def _part(self, name: str) -> str:
        parts = dict(each.partition("=")[::2] for each in self.connection_string.split(";"))
        return next((value for key, value in parts.items() if key.lower() == name), "")


@contextmanager
def failures(where: str) -> Iterator[None]:
    """Turn errors of the client into ours.

    Raises:
        LoginRefused: the key is wrong, or may not do this.
        QueueMissing: there is no such entity, or it is disabled.
        BrokerFailed: the entity requires sessions, or has none.
        Unavailable: the service does not answer, or refuses it for a reason that may pass.

    """
    try:
        yield
    except MessageSizeExceededError:
        raise  # whoever sends knows which message it is
    except (ServiceBusAuthenticationError, ServiceBusAuthorizationError) as error:
        raise LoginRefused(
            f"{where} refuses the key: {_said(error)}",
            hint="Copy the connection string anew, of a policy with the claims Listen, or Send; env:NAME takes it from "
            "the environment variable NAME.",
        ) from error
    except (MessagingEntityNotFoundError, MessagingEntityDisabledError) as error:
        raise QueueMissing(
            f"{where} is not there: {_said(error)}",
            hint="Create it, or enable it: az servicebus queue create, az servicebus topic subscription create.",
        ) from error
    except (ServiceBusError, OSError) as error:
        if "sessionful" in str(error):
            raise BrokerFailed(
                f"{where} does not fit: {_said(error)}",
                hint="sessions=True is for an entity that requires sessions, and for no other.",
            ) from error
        raise Unavailable(f"{where} does not answer: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]
