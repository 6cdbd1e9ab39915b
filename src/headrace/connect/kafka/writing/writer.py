"""Writes epochs to the topics of a cluster: an epoch is one transaction, and the mark in it says that it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError
from headrace.base.outside import OutputLost
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.writing.marked import MarkedTransactions
from headrace.connect.kafka.writing.outputs import Outputs, OutputTopic
from headrace.connect.sink import SharedWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.transactions import Transactions


class KafkaWriter(SharedWriter):
    """Writes epochs to topics of a cluster, each in one transaction.

    Args:
        address: the cluster.
        topics: the topics, by the names of their sinks.
        writer: `<app>/<storage id>`; a newer writer of the same name fences this one.
        clock: the clock of the app.
        fault: called at each point where a test may crash.

    Raises:
        Unavailable: the cluster does not answer.

    """

    def __init__(
        self,
        address: KafkaAddress,
        topics: Mapping[str, OutputTopic],
        *,
        writer: str,
        clock: Clock,
        fault: Callable[[str], None],
    ) -> None:
        self.address = address
        self.topics = topics
        self._outputs = Outputs(address, clock)
        self._marked = MarkedTransactions(address, writer, fault=fault)

    def last_epoch(self) -> int | None:
        """Return the epoch of the mark, -1 if there is none."""
        return self._marked.mark.epoch

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that each topic is the one that was written to, and ends no earlier.

        Raises:
            OutputLost: it was deleted, perhaps created again, or lost records.

        """
        names = {self.topics[sink].name for sink in epochs if sink in self.topics}
        found = cluster(self.address).describe(names)
        for name in sorted(names & set(self._marked.mark.topics)):
            written = self._marked.mark.topics[name]
            if name not in found or (written.id and found[name].id != written.id):
                gone = "is gone" if name not in found else "was deleted and created again"
                raise OutputLost(f'the topic "{name}" of Kafka at {self.address.servers} {gone}')
            ends = cluster(self.address).ends(name, found[name].partitions, committed=False)
            for partition, end in written.ends.items():
                if ends.get(partition, 0) < end:
                    where = f'the topic "{name}", partition {partition} ends at offset {ends.get(partition, 0)}'
                    raise OutputLost(f"{where}, and the app has published up to offset {end}")

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write rows and the mark of the epoch in one transaction; an epoch that is there already is left out.

        Raises:
            Fenced: a newer writer of this name is open.
            RecordTooLarge: a record is larger than its topic allows, and `too_large` is "fail".
            TopicMissing: a topic was deleted, perhaps created again.
            Unavailable: the cluster does not answer; call it again.

        """
        mark = self._marked.refresh()
        if mark.epoch >= epoch:
            return

        def send(transactions: Transactions) -> None:
            for sink, batches in rows.items():
                for number, batch in enumerate(batches):
                    if batch.num_rows:
                        self._outputs.send(transactions, self.topics[sink], batch, epoch + number)

        try:
            self._marked.write(
                send, lambda spans: mark.after(epoch, self._marked.instance, self._outputs.written(mark, epoch, spans))
            )
        except HeadraceError:
            self._outputs.doubt()
            raise

    def close(self) -> None:
        """Close the connections; the cluster aborts an unfinished transaction."""
        self._marked.close()
