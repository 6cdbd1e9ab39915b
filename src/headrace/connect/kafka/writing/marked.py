"""Transactions that say in the cluster how far a writer is: each has the writer's mark in it.

What happens when something fails:

- Before the commit: the transaction is aborted, nobody sees its records, and it is written again.
- In the commit, without an answer: whether it happened is not known. A new producer of the same transactional id is
  opened, which makes the cluster finish what was left; then the mark says it.
- The cluster refuses this producer: another process has opened the id (its mark shows it: `Fenced`), or the
  transaction took longer than the broker allows (the next one may take twice as long).
"""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from headrace.base.errors import HeadraceError, InvalidPlan
from headrace.base.outside import Fenced, Unavailable
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.writing import marks
from headrace.connect.kafka.writing.librdkafka_transactions import LibrdkafkaTransactions
from headrace.connect.kafka.writing.marks import Mark
from headrace.connect.kafka.writing.records import Records
from headrace.connect.kafka.writing.transactions import LONGEST_TIMEOUT_MS, TIMEOUT_MS, TransactionFenced
from headrace.connect.kafka.writing.wire_transactions import WireTransactions, why_not

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.transactions import Spans, Transactions


logger = logging.getLogger("headrace.kafka")
_MACHINE = SystemClock()  # marks of many apps are compared

_OPEN: WeakValueDictionary[tuple[str, str], MarkedTransactions] = WeakValueDictionary()
"""What is open in this process, by cluster and transactional id."""


class MarkedTransactions:
    """The transactions of one writer. Opening it fences an older writer of the same name.

    Args:
        address: the cluster.
        writer: its name: `<app>/<storage id>`, or `feed/<topic>`.
        fault: called at each point where a test may crash.

    Raises:
        Unavailable: the cluster does not answer.

    """

    def __init__(self, address: KafkaAddress, writer: str, *, fault: Callable[[str], None]) -> None:
        self.address = address
        self.writer = writer
        self.fault = fault
        self.instance = uuid.uuid4().hex
        self.mark = Mark(writer)
        """What is committed, as far as this writer knows."""
        self._timeout_ms = TIMEOUT_MS
        self._transactions: Transactions | None = None
        self._refuse_another_address()
        marks.ensure_marks(address)
        self._partition = marks.partition_of(writer, cluster(address).topic(self._topic).partitions)
        self._open(first=True)
        _OPEN[self._lot] = self

    @property
    def is_open(self) -> bool:
        """Whether it is known what is committed, and the next transaction can begin."""
        return self._transactions is not None

    def refresh(self) -> Mark:
        """Return the mark, after a commit whose outcome is not known the one that the cluster has.

        Raises:
            Fenced: a newer writer of this name is open.
            Unavailable: the cluster does not answer.

        """
        if self._transactions is None:
            self._open()
        return self.mark

    def write(self, send: Callable[[Transactions], None], mark: Callable[[Spans], Mark]) -> None:
        """Write what `send` sends in one transaction, with the mark that `mark` makes of its offsets.

        Raises:
            Fenced: a newer writer of this name is open.
            Unavailable: the cluster does not answer. Ask `refresh` whether it was written, then call it again.

        """
        transactions = self._transactions or self._open()
        try:
            self.fault("before_transaction")
            transactions.begin(also=(self._topic, self._partition))
            send(transactions)
            self.fault("in_transaction")
            spans = transactions.spans()
            after = mark(spans)
            self.fault("before_transaction_mark")
            self._send_mark(transactions, after)
        except TransactionFenced as error:
            self._drop()
            raise self._fenced(error) from error
        except Exception:
            self._abort()
            raise
        except BaseException:  # the thread ends: what was sent must not be in the transaction that `close` may write
            self._drop()
            raise
        try:
            self.fault("before_transaction_ends")
            transactions.commit()
        except TransactionFenced as error:
            self._drop()
            raise self._fenced(error) from error
        except BaseException:
            self._drop()  # it may have happened
            raise
        self.mark = after
        transactions.settle(spans)
        self.fault("after_transaction")

    def close(self) -> None:
        """Close the connections; the cluster aborts an unfinished transaction."""
        self._drop()

    def _send_mark(self, transactions: Transactions, mark: Mark) -> None:
        mark = replace(mark, at=_MACHINE.now())
        times = np.array([mark.at // 1_000], np.int64)
        records = Records(pa.array([mark.key()], pa.binary()), pa.array([mark.value()], pa.binary()), times)
        transactions.send(self._topic, records, np.array([self._partition], np.int32))

    # ---- producers ----

    def _open(self, *, first: bool = False) -> Transactions:
        """Open a producer: from then on an older one of this writer is fenced, and what it left is finished.

        Raises:
            Fenced: a newer writer is open already.

        """
        before = marks.read_mark(self.address, self.writer, complete=False)
        if not first:
            self._refuse_newer(before)
        transactions = open_transactions(self.address, self._transactional_id, timeout_ms=self._timeout_ms)
        try:
            self.mark = marks.read_mark(self.address, self.writer) or Mark(self.writer)
            if self.mark.instance != self.instance:
                self._give_way(before)
                transactions.begin(also=(self._topic, self._partition))
                self.mark = self.mark.after(self.mark.epoch, self.instance, {})
                self._send_mark(transactions, self.mark)
                transactions.commit()
        except TransactionFenced as error:
            transactions.close()
            raise (self._at_the_same_moment() if first else self._fenced(error)) from error
        except BaseException:
            transactions.close()
            raise
        self._transactions = transactions
        return transactions

    @property
    def _lot(self) -> tuple[str, str]:
        return cluster(self.address).id, self._transactional_id

    def _refuse_another_address(self) -> None:
        """Refuse what would fence itself: one writer by two addresses of one cluster."""
        other = _OPEN.get(self._lot)
        if other is not None and other.is_open and other.address.servers != self.address.servers:
            raise InvalidPlan(
                f"{self.writer} writes to one cluster of Kafka by two addresses: {other.address.servers} and "
                f"{self.address.servers}",
                detail="What an app writes to a cluster is one transaction, through one address.",
                hint="Give the same address in both places.",
            )

    @property
    def _topic(self) -> str:
        return self.address.cluster_name(marks.MARKS)

    @property
    def _transactional_id(self) -> str:
        return f"{self.address.prefix}headrace.{self.writer.replace('/', '.')}"

    def _give_way(self, before: Mark | None) -> None:
        """Refuse to go on where another process has opened the writer since `before` was read.

        It may be the owner of the app, and this one a process that has slept. If this one is the owner, it tries again.
        """
        if self.mark.instance != ("" if before is None else before.instance):
            raise self._at_the_same_moment()

    def _at_the_same_moment(self) -> Unavailable:
        return Unavailable(
            f"{self.writer} was opened by another process at the same moment, to write to Kafka at "
            f"{self.address.servers}"
        )

    def _refuse_newer(self, found: Mark | None) -> None:
        if found is not None and found.instance != self.instance:
            raise Fenced(f"of {self.writer}", by=f"it writes to Kafka at {self.address.servers}")

    def _fenced(self, error: Exception) -> HeadraceError:
        """Return what it means that the cluster refuses the producer: a newer writer, or too long a transaction."""
        try:
            self._refuse_newer(marks.read_mark(self.address, self.writer, complete=False))
        except HeadraceError as found:
            return found
        self._timeout_ms = min(2 * self._timeout_ms, LONGEST_TIMEOUT_MS)
        return Unavailable(
            f"Kafka at {self.address.servers} has ended the transaction of an epoch: {error}",
            detail=f"It took too long. The next attempt may take {self._timeout_ms // 1_000} seconds "
            "(transaction.timeout.ms of the address).",
        )

    def _abort(self) -> None:
        """Abort the transaction; a producer that cannot is dropped."""
        transactions = self._transactions
        try:
            if transactions is not None:
                transactions.abort()
        except (HeadraceError, TransactionFenced):
            self._drop()

    def _drop(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            with suppress(HeadraceError, TransactionFenced):
                transactions.close()


def open_transactions(address: KafkaAddress, id: str, *, timeout_ms: int = TIMEOUT_MS) -> Transactions:  # noqa: A002
    """Return a transactional producer: the fast one where it can serve the address, else librdkafka's.

    Raises:
        Unavailable: the cluster does not answer.

    """
    why = why_not(address.configuration())
    if why is None:
        return WireTransactions(address, id, timeout_ms=timeout_ms)
    logger.info("the topics at %s are written by librdkafka because of %s", address.servers, why)
    return LibrdkafkaTransactions(address, id, timeout_ms=timeout_ms)
