"""Transactions of AMQP 1.0: a link to the broker's coordinator, which declares and discharges them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton import Delivery, Described, Message, Terminus, symbol

from headrace.base.broker_errors import BrokerFailed
from headrace.connect.amqp.address import Refused

if TYPE_CHECKING:
    from headrace.connect.amqp.connection import Connection

_DECLARED, _IN_TRANSACTION = 0x33, 0x34
"""States of deliveries: of one that began a transaction, and of one that is a part of it."""


class Transactions:
    """The transactions of a connection, one after the other.

    Args:
        connection: to the broker.

    Raises:
        BrokerFailed: the broker has no transactions.
        Refused, OSError: it refuses them, or does not answer.

    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._id: Any = None
        self._coordinator = connection.session.sender("coordinator")
        self._coordinator.target.type = Terminus.COORDINATOR
        self._coordinator.target.capabilities.put_object(symbol("amqp:local-transactions"))
        try:
            connection.attach(self._coordinator)
        except Refused as error:
            raise BrokerFailed(
                f"the broker has no transactions of AMQP 1.0: {error}",
                hint="With transactions=False messages are sent one by one, and an epoch is seen in parts.",
            ) from error

    def begin(self) -> None:
        """Begin one; raises as `commit` does."""
        self._id = self._ask("amqp:declare:list", [None])[0]

    def add(self, delivery: Delivery) -> None:
        """Make what is sent next a part of the transaction."""
        delivery.local.data = [self._id]
        delivery.update(_IN_TRANSACTION)

    def commit(self) -> None:
        """Make its messages visible, all at once.

        Raises:
            Refused: the broker does not; then nothing of it is there.
            OSError: the broker does not answer; whether it is there is not known.

        """
        self._ask("amqp:discharge:list", [self._id, False])

    def _ask(self, what: str, value: list[Any]) -> list[Any]:
        coordinator, until = self._coordinator, self._connection.until
        until(lambda: coordinator.credit > 0, what)
        delivery = Message(body=Described(symbol(what), value)).send(coordinator)
        until(lambda: bool(delivery.remote_state), what)
        refused, found = refusal(delivery, what), delivery.remote.data
        delivery.settle()
        if refused is not None:
            raise refused
        return found or []


def refusal(delivery: Delivery, what: str) -> Refused | None:
    """Return how a broker has refused a delivery, None if it has taken it, for good or in a transaction."""
    remote, state = delivery.remote, delivery.remote_state
    if state == _IN_TRANSACTION:  # the transaction's id, and what becomes of the delivery when it is committed
        outcome = (remote.data or [])[1:]
        if not outcome or outcome[0].descriptor == Delivery.ACCEPTED:
            return None
        return Refused("", f"{what} is refused in its transaction: {outcome[0].value}")
    if state in (Delivery.ACCEPTED, _DECLARED):
        return None
    condition = remote.condition
    name, said = ("", f"outcome {state}") if condition is None else (condition.name, condition.description)
    return Refused(str(name), f"{what} is refused: {said}")
