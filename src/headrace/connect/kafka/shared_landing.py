"""Topics of a cluster that one feed fills: an append to all of them and the position are one transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from headrace.base.errors import SchemaRefused
from headrace.base.outside import FeedChanged, FeedRunsElsewhere, FeedTopicReplaced, Fenced
from headrace.base.schema import to_ddl
from headrace.connect.embedded.requests import answered, requests_of
from headrace.connect.feed import Progress, Request, SharedLanding
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.landing import (
    close_feed,
    dead_output_of,
    give_way,
    letters_of,
    output_of,
    stay_out,
    timed,
)
from headrace.connect.kafka.open_topic import KafkaOpenTopic
from headrace.connect.kafka.writing import marks
from headrace.connect.kafka.writing.marked import MarkedTransactions
from headrace.connect.kafka.writing.outputs import Outputs
from headrace.log import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.connect.feed import DeadRecord
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.marks import Mark
    from headrace.connect.kafka.writing.transactions import Spans, Transactions
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log
    from headrace.log.rows import Rows


class KafkaSharedLanding(SharedLanding):
    """Topics of a cluster that one feed fills; close it when done. `KafkaLanding` says who may open it.

    Args:
        address: the cluster.
        group: the name of the feeds' group.
        log: the embedded log that has the app's journal, and beside it the requests.
        topics: the topics, which exist, by name, each with the identity of its feed.
        limit: there is no room while the app has so many unread records of a topic.
        read: returns up to which offsets the app has read a topic, added up over its partitions.
        fault: called at each point where a test may crash.

    """

    def __init__(
        self,
        address: KafkaAddress,
        group: str,
        *,
        log: Log,
        topics: Mapping[str, tuple[TopicSpec, str]],
        limit: int,
        read: Callable[[str], int],
        fault: Callable[[str], None],
    ) -> None:
        self.address = address
        self.group = group
        self.log = log
        self.topics = {name: spec for name, (spec, _) in topics.items()}
        self.feeds = {name: feed for name, (_, feed) in topics.items()}
        self.limit = limit
        self.read = read
        self._clock = log.clock
        self._appends = 0
        self._lot = (address, group)
        stay_out(self._lot, f"feed/{group}")
        self._outputs = Outputs(address, log.clock)
        self._to = {name: output_of(address, spec) for name, spec in self.topics.items()}
        self._dead = {name: dead_output_of(address, spec, self._outputs) for name, spec in self.topics.items()}
        self._marked = MarkedTransactions(address, f"feed/{group}", fault=fault)
        try:
            self._check(self._marked.mark)
        except BaseException:
            self.close()
            raise

    def schema(self, topic: str) -> pa.Schema:
        """Return the columns of a topic."""
        return self.topics[topic].schema

    def position(self) -> bytes | None:
        """Return the position of the last append, None before the first."""
        return self._marked.mark.position

    def has_room(self) -> bool:
        """Whether the app has fewer than `limit` unread records of each topic."""
        at = cluster(self.address)
        for name, to in self._to.items():
            ends = at.ends(to.name, at.topic(to.name).partitions, committed=False)
            if sum(ends.values()) - self.read(name) >= self.limit:
                return False
        return True

    def append(
        self,
        rows: Mapping[str, Rows],
        *,
        position: bytes | None = None,
        dead: Mapping[str, Sequence[DeadRecord]] | None = None,
    ) -> None:
        """Append rows exactly once, and store the position with them: one transaction.

        Raises:
            InvalidRows: a row does not fit; nothing was appended.
            FeedRunsElsewhere: another process has taken the feeds over; nothing was appended.
            Unavailable: the cluster does not answer. Open the landing anew: it may or may not have been appended.

        """
        now = self._clock.now()
        tables = {
            name: timed(rows_to_table(given, self.schema(name)), now, changes=self.topics[name].upserts)
            for name, given in rows.items()
        }
        letters = {name: timed(letters_of(name, each), now, changes=False) for name, each in (dead or {}).items()}
        before, self._appends = self._marked.mark, self._appends + 1

        def send(transactions: Transactions) -> None:
            for outputs, given in ((self._to, tables), (self._dead, letters)):
                for name, table in given.items():
                    for batch in table.to_batches():
                        self._outputs.send(transactions, outputs[name], batch, self._appends)

        def mark(spans: Spans) -> Mark:
            after = before.after(before.epoch + 1, self._marked.instance, {})
            topics = {**before.topics, **self._outputs.written(before, after.epoch, spans)}
            at = before.position if position is None else position
            return replace(after, topics=topics, feed=self._described(before), position=at)

        try:
            self._marked.write(send, mark)
        except Fenced as error:
            give_way(self._marked, self._lot)
            raise FeedRunsElsewhere(self.group) from error

    def evolve(self, topic: str, schema: pa.Schema) -> None:
        """Refuse other columns while the feed runs: those of a topic in Kafka are what the app declares.

        Raises:
            SchemaRefused: there are others.

        """
        declared = self.schema(topic)
        if schema != declared:
            wrong = ["its columns are what the app declares: declare the new ones, and start it again"]
            raise SchemaRefused(topic, wrong, old=to_ddl(declared), new=to_ddl(schema))

    def opened(self, topic: str) -> KafkaOpenTopic:
        """Return a topic."""
        return KafkaOpenTopic(self.address, self.topics[topic], self._clock)

    def requests(self) -> Sequence[Request]:
        """Return what is to be read anew: the requests are kept beside the app's journal."""
        return [each for each in requests_of(self.log) if each.topic in self.topics]

    def answered(self, request: Request) -> None:
        """Forget a request."""
        answered(self.log, request)

    def report(self, **progress: Unpack[Progress]) -> None:
        """Do nothing: who runs the feeds shows their state."""

    def close(self) -> None:
        """Let go of the connections, and of the feeds, so that another process can run them."""
        close_feed(self._marked)

    def _described(self, mark: Mark) -> str:
        return json.dumps({**_feeds(mark), **self.feeds})

    def _check(self, mark: Mark) -> None:
        """Refuse another feed's position, and topics that are not those that the position is of."""
        where = f"the mark feed/{self.group} in the topic {self.address.cluster_name(marks.MARKS)}"
        were = _feeds(mark)
        for name, feed in self.feeds.items():
            if were.get(name, feed) != feed:
                raise FeedChanged(name, was=were[name], now=feed, state=where)
            written = mark.topics.get(self._to[name].name)
            if written is not None and written.id != cluster(self.address).topic(self._to[name].name).id:
                raise FeedTopicReplaced(name, state=where)


def _feeds(mark: Mark) -> dict[str, str]:
    """Return by topic which feed a mark is of."""
    found: dict[str, str] = json.loads(mark.feed) if mark.feed is not None else {}
    return found
