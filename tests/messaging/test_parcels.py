"""The example of parcels: RabbitMQ, a webhook and Kinesis in, Kafka and ActiveMQ out, against the batch answer."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import random
import runpy
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from broker_cases import until
from headrace.log import Log

EXAMPLE = Path(__file__).parents[2] / "examples" / "parcels.py"
SECRET, REGION = "not-a-secret", "eu-central-1"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SEED = int(os.environ.get("SEED", "7"))
COUNT, KILLS = 4_000, 8
LAST = 40
"""So many records of each input are ten days later, and let everything before be final, in every partition."""


def test_the_program_is_a_plan_with_two_joins_and_two_sinks(monkeypatch):
    for each in ("pika", "aiohttp", "boto3", "confluent_kafka", "stomp"):
        pytest.importorskip(each)
    monkeypatch.setenv("PAYMENTS_SECRET", SECRET)
    shown = str(runpy.run_path(str(EXAMPLE))["app"].explain())
    assert "paid  [join]  <- orders, payments" in shown
    assert "done  [join]  <- paid_where, parcels" in shown
    assert "stomp:reminders" in shown


def inputs(count):
    """Return orders, payments and parcels: some are paid twice, too late or never, some are not sent."""
    drawn = random.Random(SEED)  # noqa: S311 -- it replays
    orders, payments, parcels = [], [], []
    for number in range(count):
        at = NOON + timedelta(seconds=drawn.uniform(0, 1_800))
        amount = float(drawn.randrange(1, 200))
        orders.append({"order_id": number, "customer": f"c{number % 97}", "amount": amount, "at": at.isoformat()})
        hours = drawn.choice([[], [30.0], [drawn.uniform(-0.4, 23)], [0.5], [1.0, 2.0], [3.0]])
        for each in hours:
            paid_at = (at + timedelta(hours=each)).isoformat()
            payments.append({"order_id": number, "paid": amount / len(hours), "paid_at": paid_at})
        if drawn.random() < 0.8:
            sent_at = (at + timedelta(hours=drawn.uniform(0, 80))).isoformat()
            parcels.append({"order_id": number, "carrier": drawn.choice("ABC"), "sent_at": sent_at})
    for rows in (orders, payments, parcels):
        drawn.shuffle(rows)
    return orders, payments, parcels


def last_ones():
    """Return records of ten days later, which match nothing."""
    late = (NOON + timedelta(days=10)).isoformat()
    return (
        [{"order_id": -1 - n, "customer": "last", "amount": 0.0, "at": late} for n in range(LAST)],
        [{"order_id": -1001 - n, "paid": 0.0, "paid_at": late} for n in range(LAST)],
        [{"order_id": -2001 - n, "carrier": "A", "sent_at": late} for n in range(LAST)],
    )


def batch_answer(orders, payments, parcels, folder):
    """Return what DuckDB says of all the input at once: the rows of `done`, and the orders to remind of."""
    with duckdb.connect() as duck:
        for name, rows in (("orders", orders), ("payments", payments), ("parcels", parcels)):
            (folder / f"{name}.json").write_text("".join(json.dumps(each) + "\n" for each in rows))
            duck.execute(f"create view {name} as select * from read_json('{folder / name}.json')")
        duck.execute("""
            create view paid as select o.*, paid, paid_at, greatest(o."at", paid_at) as since from orders o
            left join payments p on o.order_id = p.order_id
                and paid_at between o."at" - interval 1 day and o."at" + interval 1 day""")
        done = duck.execute("""
            select p.order_id, customer, amount, paid, carrier from paid p join parcels c on p.order_id = c.order_id
            where paid_at is not null
                and sent_at between since - interval 1 day and since + interval 3 days""").fetchall()
        unpaid = duck.execute("select order_id, customer, amount from paid where paid_at is null").fetchall()
    return Counter(done), Counter(unpaid)


class Outside:
    """All that the program talks to. What is sent twice has the same id."""

    def __init__(self, rabbit, kinesis, kafka, artemis, folder):
        import boto3
        from scripts.broker.servers import free_ports

        self.rabbit, self.kafka, self.artemis = rabbit, kafka, artemis
        self.port = free_ports(1)
        self.environment = {
            "PARCELS_RABBITMQ": rabbit.url,
            "PARCELS_PAYMENTS": f"http://127.0.0.1:{self.port}/payments",
            "PARCELS_KINESIS": kinesis.url(),
            "PARCELS_KAFKA": kafka.address,
            "PARCELS_ACTIVEMQ": artemis.url(),
            "PARCELS_STORAGE": str(folder / "storage"),
            "PAYMENTS_SECRET": SECRET,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        named = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": REGION}
        self.kinesis = boto3.client("kinesis", endpoint_url=kinesis.url(), **named)
        self.kinesis.create_stream(StreamName="parcels", ShardCount=2)
        about = lambda: self.kinesis.describe_stream_summary(StreamName="parcels")["StreamDescriptionSummary"]  # noqa: E731
        until(lambda: about()["StreamStatus"] == "ACTIVE", "the stream is active")
        rabbit.declare("orders")
        self.log = folder / "storage" / "log"

    def order(self, rows):
        import pika

        with self.rabbit.channel() as channel:
            for at, each in enumerate(rows):
                about = pika.BasicProperties(delivery_mode=2, message_id=f"o{each['order_id']}")
                for _ in range(2 if at % 20 == 0 else 1):
                    channel.basic_publish("", "orders", json.dumps(each).encode(), about, mandatory=True)

    def pay(self, rows):
        """Post some payments at a time until they are taken, as a provider of payments does."""
        for at in range(0, len(rows), 10):
            body = json.dumps(rows[at : at + 10]).encode()
            signed = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            headers = {
                "Content-Type": "application/json",
                "Idempotency-Key": hashlib.sha256(body).hexdigest(),
                "X-Hub-Signature-256": f"sha256={signed}",
            }
            for _ in range(2 if at % 200 == 0 else 1):
                until(lambda headers=headers, body=body: self._posted(body, headers), "a payment is taken", 300)

    def _posted(self, body, headers):
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
                connection.request("POST", "/payments", body, headers)
                status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False  # it is killed, or starts
        assert status in {204, 429, 503}, status
        return status == http.client.NO_CONTENT

    def send(self, rows):
        for at in range(0, len(rows), 100):
            some = [{"Data": json.dumps(e).encode(), "PartitionKey": str(e["order_id"])} for e in rows[at : at + 100]]
            assert not self.kinesis.put_records(StreamName="parcels", Records=some)["FailedRecordCount"]
            time.sleep(0.05)

    def landed(self):
        """Return how many rows each topic has."""
        if not self.log.exists():
            return {}
        with Log(self.log) as log:
            there = [name for name in ("orders", "payments", "parcels") if log.has_topic(name)]
            return {name: sum(log.topic(name).end_offsets().values()) for name in there}

    def started(self, *options):
        command = [str(Path(sys.executable).with_name("headrace")), "run", str(EXAMPLE), "--local", *options]
        return subprocess.Popen(command, env={**os.environ, **self.environment})

    def done(self):
        """Return the rows that Kafka's readers of committed records see."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": "test", "isolation.level": "read_committed"}
        rows = []
        with closing(Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})) as consumer:
            name = self.kafka.topic("done")
            parts = consumer.list_topics(name).topics[name].partitions
            consumer.assign([TopicPartition(name, part, 0) for part in parts])
            ended = 0
            while ended < len(parts):
                found = consumer.poll(30)
                if found.error():
                    ended += 1
                else:
                    rows.append(json.loads(found.value()))
        return rows

    def reminders(self):
        """Take the messages of ActiveMQ: by id the order."""
        from headrace.connect.messages.address import BrokerAddress
        from headrace.connect.stomp.connection import Connection

        found, quiet = [], 0
        with closing(Connection(BrokerAddress(self.artemis.url()))) as connection:
            connection.ask(
                "SUBSCRIBE", {"id": "1", "destination": "reminders", "ack": "auto", "subscription-type": "ANYCAST"}
            )
            while quiet < 20:
                some = list(connection.messages(0.1))
                quiet = 0 if some else quiet + 1
                found += some
        return [(each.headers["headrace-id"], json.loads(each.body)) for each in found]


def killed_at(moment, app, outside):
    """Kill the program when so many rows are landed, and return the next one."""
    until(lambda: app.poll() is not None or sum(outside.landed().values()) >= moment, "more is landed", 300)
    assert app.poll() is None
    time.sleep(moment % 500 / 1000)
    app.kill()
    app.wait()
    return outside.started()


@pytest.mark.prove
def test_three_inputs_joined_into_two_outputs_give_the_batch_answer_across_kills(
    rabbit, kinesis_of_the_run, broker, artemis, tmp_path
):
    """Messages are sent while the program runs and is killed; some are sent twice."""
    kinesis_of_the_run.start()
    outside = Outside(rabbit, kinesis_of_the_run, broker, artemis, tmp_path)
    sent = inputs(COUNT)
    senders = [
        threading.Thread(target=send, args=(rows,))
        for send, rows in zip((outside.order, outside.pay, outside.send), sent, strict=True)
    ]
    drawn = random.Random(SEED)  # noqa: S311 -- it replays
    print(f"SEED={SEED}")  # noqa: T201 -- a failure shows it
    wanted = dict(zip(("orders", "payments", "parcels"), map(len, sent), strict=True))
    everything = sum(wanted.values())
    moments = sorted(drawn.sample(range(everything // 20, everything * 9 // 10), KILLS))
    app = outside.started()
    try:
        for each in senders:
            each.start()
        for moment in moments:
            app = killed_at(moment, app, outside)
        for each in senders:
            each.join()
        until(lambda: outside.landed() == wanted, f"all are landed: {wanted}", 300)
        for send, rows in zip((outside.order, outside.pay, outside.send), last_ones(), strict=True):
            send(rows)
        until(
            lambda: set(outside.landed()) and sum(outside.landed().values()) == everything + 3 * LAST, "the last", 300
        )
    finally:
        app.kill()
        app.wait()
    end = outside.started("--until-caught-up")
    assert end.wait(timeout=300) == 0
    done, unpaid = batch_answer(*sent, tmp_path)
    assert len(done) > COUNT / 3
    assert len(unpaid) > COUNT / 5
    found = Counter(
        (row["order_id"], row["customer"], row["amount"], row["paid"], row["carrier"]) for row in outside.done()
    )
    assert found == done, "Kafka has each row once"
    reminders = outside.reminders()
    by_id = {id_: tuple(row[name] for name in ("order_id", "customer", "amount")) for id_, row in reminders}
    assert Counter(by_id.values()) == unpaid, "ActiveMQ has each row, with one id"
    print(f"{len(reminders) - len(by_id)} of {len(reminders)} reminders came again")  # noqa: T201 -- how often
