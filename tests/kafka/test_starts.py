"""Where an app begins to read a topic, and that it is decided once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from reading import created, producer

import headrace as hr
from broker_cases import until
from headrace.base.errors import InvalidPlan, InvalidTime
from headrace.connect import kafka
from headrace.testing import Driver


@pytest.fixture(params=["in process", pytest.param("spark", marks=pytest.mark.spark)])
def carrier(request):
    """The name of a carrier; on Spark these are long cases."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param


class Ids:
    """An app that shows which ids it has read."""

    def __init__(self, broker, storage, start, carrier):
        source = kafka.topic(broker.address, "t", start=start)
        self.app = hr.App("ids", shards=1)
        self.app.stream("ids", "id int", source=source, format="json").to_view("ids")
        self.storage, self.carrier = storage, carrier

    def driver(self):
        return Driver(self.app, storage=self.storage, carrier=self.carrier)

    def read(self):
        """Run the app until it has read everything; return what it has read since it was first run."""
        with self.driver() as driver:
            driver.run()
            return sorted(row["id"] for row in driver.view("ids"))


def send(broker, *ids, partition=0, at=0):
    writer = producer(broker)
    for number in ids:
        writer.produce(broker.topic("t"), f'{{"id": {number}}}', partition=partition, timestamp=at)
    writer.flush()


def test_from_the_end_means_the_end_when_the_app_first_looked(broker, tmp_path, carrier):
    """Also in partitions of which nothing is read before the app is restarted."""
    created(broker, partitions=2)
    send(broker, 1, 2)
    send(broker, 3, partition=1)
    app = Ids(broker, tmp_path, "latest", carrier)
    with app.driver() as driver:
        driver.run()
        assert driver.view("ids") == []
        send(broker, 4)
        driver.advance(1)
        driver.run()
        assert [row["id"] for row in driver.view("ids")] == [4]
    send(broker, 5, partition=1)
    assert app.read() == [4, 5]


def test_partitions_that_are_added_later_are_read_from_their_first_record(broker, tmp_path, carrier):
    created(broker)
    send(broker, 1)
    app = Ids(broker, tmp_path, "latest", carrier)
    with app.driver() as driver:
        driver.run()
        send(broker, 2)
        driver.advance(1)
        driver.run()
    from headrace.connect.kafka.client.administration import cluster  # not above: the client is slow to import

    cluster(kafka.KafkaAddress.parse(broker.address)).add_partitions(broker.topic("t"), 2)
    send(broker, 3, partition=1)
    until(lambda: app.read() != [2], "a broker that is asked knows of the partition")
    assert app.read() == [2, 3]


def test_an_app_may_begin_at_a_time(broker, tmp_path, carrier):
    created(broker, partitions=2)
    day = datetime(2026, 1, 2, tzinfo=UTC)
    midnight = int(day.timestamp()) * 1_000
    send(broker, 1, at=midnight - 1)
    send(broker, 2, 3, at=midnight)
    send(broker, 4, partition=1, at=midnight - 5)  # nothing is so late there: from the end
    app = Ids(broker, tmp_path, day, carrier)
    assert app.read() == [2, 3]
    send(broker, 5, partition=1, at=midnight - 3)
    assert app.read() == [2, 3, 5]


def test_what_is_no_start_is_refused():
    with pytest.raises(InvalidTime):
        kafka.topic("kafka://localhost", "t", start="soon")
    with pytest.raises(InvalidPlan, match="isolation='serializable' is not known"):
        kafka.topic("kafka://localhost", "t", isolation="serializable")
