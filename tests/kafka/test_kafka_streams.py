"""A program of Kafka Streams continues from a changelog that an app has written."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import writing

import headrace as hr
from headrace.connect import kafka
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.testing import Driver

PROGRAM = Path(__file__).parent / "java" / "CountRows.java"
STREAMS = "org.apache.kafka:kafka-streams:4.1.0"


@pytest.fixture
def counting(broker, tmp_path):
    """Start the program, which counts the rows of the table in the topic "totals" into the topic "counts"."""
    from scripts.broker.brokers import JARS
    from scripts.broker.jars import Unavailable, fetched, java

    try:
        jars = fetched(*JARS, STREAMS)
    except Unavailable as reason:
        pytest.skip(f"no Kafka Streams: {reason}")
    at = cluster(KafkaAddress.parse(broker.address))
    at.create(broker.topic("totals"), partitions=2, settings={"cleanup.policy": "compact"})
    at.create(broker.topic("counts"), partitions=1, settings={"retention.ms": "-1"})  # times are of the events
    names = broker.topic("totals"), broker.topic("counts")
    with (tmp_path / "streams.log").open("w") as log:
        command = [str(java()), "-Xmx300m", "-cp", f"{jars}/*", str(PROGRAM), broker.bootstrap, *names, str(tmp_path)]
        program = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        yield
        program.terminate()
        program.wait(30)


def last_count(broker):
    found = [record["value"] for record in writing.records(broker, "counts")[0]]
    return int(found[-1]) if found else 0


def await_count(broker, wanted, *, seconds=90):
    until = time.monotonic() + seconds
    while last_count(broker) != wanted and time.monotonic() < until:
        time.sleep(0.2)
    assert last_count(broker) == wanted


@pytest.mark.prove
@pytest.mark.usefixtures("counting")
def test_kafka_streams_reads_our_changelog_as_a_table_and_sees_rows_come_and_go(broker):
    app = hr.App("shop")
    accounts = app.table("accounts", "id int, balance int", key="id")
    accounts.where("balance > 0").to(kafka.topic(broker.address, "totals"))
    with Driver(app) as driver:
        driver.send("accounts", *({"id": n, "balance": 1} for n in range(50)))
        driver.run()
        await_count(broker, 50)
        driver.send("accounts", *({"id": n, "balance": 0} for n in range(20)))
        driver.run()
        await_count(broker, 30)
        driver.send("accounts", {"id": 3, "balance": 5}, {"id": 40, "balance": 9})
        driver.run()
        await_count(broker, 31)
