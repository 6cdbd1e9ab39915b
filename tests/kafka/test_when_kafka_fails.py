"""What an app does and says when the cluster fails it, as its user sees it; docs/kafka.md has the table."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import headrace as hr
from headrace.base.broker_errors import LoginRefused
from headrace.base.errors import HeadraceError, InvalidPlan
from headrace.base.outside import AccessRefused, OutputLost, SourceReplaced, Unavailable
from headrace.connect.kafka import KafkaAddress
from headrace.connect.kafka.client import administration
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.record_topic import RecordTopic
from headrace.testing import Driver

NOTICED_SECONDS = 1.2
"""So long may it take until a change of a topic is noticed."""


def shop(address, **more):
    app = hr.App("shop", topics=address, shards=1)
    orders = app.stream("orders", "user string, n bigint, at timestamp", key="user", event_time="at", **more)
    orders.where("n > 1").to_topic("big")
    orders.group_by("user").agg(n="sum(n)").named("spent").to_view("spent")
    return app


def at_of(broker):
    address = KafkaAddress.parse(broker.address)
    return cluster(address), address.cluster_name


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch):
    monkeypatch.delenv("HEADRACE_TOPICS", raising=False)


def test_a_partition_that_is_added_is_read(broker):
    with Driver(shop(broker.address)) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        driver.run()
        at, name = at_of(broker)
        at.add_partitions(name("orders"), 3)
        time.sleep(NOTICED_SECONDS)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for partition in range(3):
            value = f'{{"user": "u{partition}", "n": 2, "at": "2026-01-31T10:00:00"}}'
            producer.produce(name("orders"), value, partition=partition)
        producer.flush()
        driver.run()
        assert {row["user"]: row["n"] for row in driver.view("spent")} == {"ann": 1, "u0": 2, "u1": 2, "u2": 2}


def test_a_driver_that_sends_and_reads_often_keeps_a_few_connections(broker):
    def opened():
        return [len(list(Path(f"/proc/self/{each}").iterdir())) for each in ("task", "fd")]

    with Driver(shop(broker.address)) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        driver.run()
        driver.read("big")
        threads, files = opened()
        for _ in range(10):
            driver.send("orders", {"user": "ann", "n": 1, "at": 1})
            driver.read("big")
        now = opened()
        assert now[0] <= threads + 3
        assert now[1] <= files + 6


def test_a_topic_that_was_deleted_stops_the_app_and_nothing_is_skipped(broker):
    with Driver(shop(broker.address)) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        driver.run()
        at, name = at_of(broker)
        at.delete(name("orders"))
        time.sleep(NOTICED_SECONDS)
        with pytest.raises(SourceReplaced, match="is gone") as gone:
            driver.run()
        assert "headrace reset FILE" in gone.value.hint
        assert driver.view("spent") == [{"user": "ann", "n": 1}]
        at.create(name("orders"))
        with pytest.raises(SourceReplaced, match="was deleted and created again"):
            driver.restart()


def test_an_output_topic_that_was_deleted_is_named_at_the_start(broker):
    with Driver(shop(broker.address)) as driver:
        driver.send("orders", {"user": "ann", "n": 2, "at": 1})
        driver.run()
        at, name = at_of(broker)
        at.delete(name("big"))
        with pytest.raises(OutputLost, match=f'the topic "{name("big")}" of Kafka at .* was deleted'):
            driver.restart()


def test_a_refused_login_ends_the_app_at_once_and_shows_no_password(broker):
    address = broker.kafka.sasl_address("ada", password="guessed")  # noqa: S106
    before = time.monotonic()
    with pytest.raises(LoginRefused) as refused, Driver(shop(address)) as driver:
        driver.run()
    assert time.monotonic() - before < 10, "a refused login is no outage: nobody waits for it"
    said = str(refused.value)
    assert "guessed" not in said
    assert "sasl.password=env:NAME" in said


def test_a_password_that_the_environment_does_not_have_is_named(broker):
    address = broker.kafka.sasl_address("ada", password="env:SHOP_PASSWORD")  # noqa: S106
    with pytest.raises(InvalidPlan, match="the environment has no variable SHOP_PASSWORD"):
        Driver(shop(address))


def test_a_password_comes_from_the_environment(broker, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "lovelace")
    address = broker.kafka.sasl_address("ada", password="env:SHOP_PASSWORD")  # noqa: S106
    with Driver(shop(f"{address}&prefix={broker.prefix}")) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        driver.run()
        assert driver.view("spent") == [{"user": "ann", "n": 1}]


def test_an_app_runs_over_tls(broker):
    with Driver(shop(f"{broker.kafka.tls_address}&prefix={broker.prefix}")) as driver:
        driver.send("orders", {"user": "ann", "n": 2, "at": 1})
        driver.run()
        assert [row["user"] for row in driver.read("big")] == ["ann"]


def test_a_user_without_rights_is_told_so(broker):
    with (
        pytest.raises(AccessRefused) as refused,
        Driver(shop(f"{broker.kafka.sasl_address('eve')}&prefix={broker.prefix}")) as driver,
    ):
        driver.run()
    assert "does not allow this user" in refused.value.what


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "JSON"),
        (b'{"user": "bob", "n": "many", "at": "2026-01-31T10:00:00"}', "n"),
        (b'{"user": "bob", "n": 1}', "at"),
        (b"\xff\xfe", "JSON"),
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_a_dead_letter_with_its_place(broker, value, why):
    with Driver(shop(broker.address)) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        RecordTopic(KafkaAddress.parse(broker.address), "orders").append([{"key": b"bob", "value": value}])
        driver.run()
        (letter,) = driver.read("orders.dead")
        assert (letter["partition"], letter["offset"]) == (0, 1)
        assert why in letter["reason"]
        assert driver.view("spent") == [{"user": "ann", "n": 1}]


def test_a_record_that_its_dead_letters_have_no_room_for_is_shortened_there(broker):
    with Driver(shop(broker.address)) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        driver.run()
        at = RecordTopic(KafkaAddress.parse(broker.address), "orders")
        at.append([{"key": b"bob", "value": value} for value in (b'"' * 900_000, b"{", b"x" * 900_000)])
        driver.run()
        letters = sorted(driver.read("orders.dead"), key=lambda letter: letter["offset"])
        assert [(letter["offset"], len(letter["record"])) for letter in letters] == [(1, 10_000), (2, 1), (3, 900_000)]


def test_a_record_that_does_not_fit_stops_an_app_that_wants_it(broker):
    with Driver(shop(broker.address, on_error="fail")) as driver:
        driver.send("orders", {"user": "ann", "n": 1, "at": 1})
        RecordTopic(KafkaAddress.parse(broker.address), "orders").append([{"key": b"bob", "value": b"{"}])
        with pytest.raises(HeadraceError) as stopped:
            driver.run()
        assert "offset 1" in str(stopped.value) or "offset 1" in stopped.value.detail


def test_a_cluster_that_is_not_there_is_named_with_its_address(monkeypatch):
    monkeypatch.setattr(administration, "SECONDS", 1.0)
    with pytest.raises(Unavailable) as error, Driver(shop("kafka://127.0.0.1:1")) as driver:
        driver.run()
    assert "Kafka at 127.0.0.1:1" in error.value.what
    assert "Connection refused" in error.value.detail


PROGRAM = """
import headrace as hr

app = hr.App("shop", storage="shop", shards=1)
orders = app.stream("orders", "user string, n bigint", key="user")
orders.to_topic("copies")
orders.group_by("user").agg(n="sum(n)").named("spent").to_view("spent")
"""


@contextmanager
def running(folder, address):
    (folder / "shop.py").write_text(PROGRAM)
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", "run", "shop.py", "--local"]
    with (folder / "shop.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "HEADRACE_TOPICS": address}
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def await_true(what, condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.prove
def test_an_app_outlives_a_broker_that_is_down_at_the_start_and_in_mid_run(breakable, tmp_path):
    """It says that it waits, goes on by itself, and every record is counted and published once."""
    address = KafkaAddress.parse(breakable.address)
    cluster(address).create(address.cluster_name("orders"), partitions=1)
    orders = RecordTopic(address, "orders")
    orders.append([{"value": b'{"user": "ann", "n": 1}'}])
    log = tmp_path / "shop.log"

    def said(text, times=1):
        return lambda: log.exists() and log.read_text().count(text) >= times

    def spent():
        result = hr.App("shop", storage=tmp_path / "shop").view("spent").to_pylist()
        return {row["user"]: row["n"] for row in result}

    breakable.kafka.kill()
    with running(tmp_path, breakable.address) as process:
        await_true("the app says that the cluster is down", said("[UNAVAILABLE] Kafka at"))
        assert "restart 1 of 20" in log.read_text()
        breakable.kafka.restart()
        await_true("the app reads when the broker is back", lambda: (tmp_path / "shop/views.db").exists() and spent())
        breakable.kafka.kill()
        time.sleep(3)
        breakable.kafka.restart()
        orders.append([{"value": b'{"user": "bob", "n": 2}'}])
        await_true("the app goes on after an outage", lambda: "bob" in spent())
        assert process.poll() is None
    copies = RecordTopic(address, "copies")
    batches = (batch for part, end in copies.end_offsets().items() for batch in copies.batches(part, 0, end))
    values = sorted(value for batch in batches for value in batch["value"].to_pylist())
    assert values == ['{"user":"ann","n":1}', '{"user":"bob","n":2}']
    assert spent() == {"ann": 1, "bob": 2}


@contextmanager
def rights(broker):
    """Let the user eve do what the page lists; yields what takes a right away: type, name, operation."""
    can, kinds = AclOperation, ResourceType
    prefix = broker.prefix
    topic = [can.DESCRIBE, can.DESCRIBE_CONFIGS, can.READ, can.WRITE, can.CREATE]
    listed = [(kinds.TOPIC, prefix, each) for each in topic]
    listed += [(kinds.TRANSACTIONAL_ID, f"{prefix}headrace.", each) for each in (can.WRITE, can.DESCRIBE)]
    listed += [(kinds.GROUP, f"{prefix}shop", each) for each in (can.READ, can.DESCRIBE)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def give(*given, permission=AclPermissionType.ALLOW):
        kind = ResourcePatternType.PREFIXED
        bindings = [AclBinding(*each[:2], kind, "User:eve", "*", each[2], permission) for each in given]
        for made in admin.create_acls(bindings).values():
            made.result()

    give(*listed)
    try:
        yield lambda *each: give(each, permission=AclPermissionType.DENY)
    finally:
        any_of = ResourcePatternType.ANY, "User:eve", None, can.ANY, AclPermissionType.ANY
        every = AclBindingFilter(kinds.ANY, None, *any_of)
        for gone in admin.delete_acls([every]).values():
            gone.result()


def test_the_rights_that_the_page_lists_are_enough(broker):
    with rights(broker), Driver(shop(f"{broker.kafka.sasl_address('eve')}&prefix={broker.prefix}")) as driver:
        driver.send("orders", {"user": "ann", "n": 2, "at": 1})
        driver.run()
        assert [row["user"] for row in driver.read("big")] == ["ann"]
        driver.restart()
        driver.send("orders", {"user": "bob", "n": 1, "at": 1})
        driver.run()
        assert len(driver.view("spent")) == 2
    group = broker.topic("shop")
    assert cluster(KafkaAddress.parse(broker.address)).group_offsets(group) == {(broker.topic("orders"), 0): 2}


def goes_on(driver):
    """Write on: a broker may hear late of a right that is taken away."""
    for _ in range(200):
        driver.send("orders", {"user": "bob", "n": 2, "at": 1})
        driver.run()


def test_a_right_that_is_taken_away_while_an_app_writes_is_named(broker):
    with rights(broker) as deny, Driver(shop(f"{broker.kafka.sasl_address('eve')}&prefix={broker.prefix}")) as driver:
        driver.send("orders", {"user": "ann", "n": 2, "at": 1})
        driver.run()
        deny(ResourceType.TOPIC, broker.topic("big"), AclOperation.WRITE)
        with pytest.raises(AccessRefused, match=f'write to the topic "{broker.topic("big")}"'):
            goes_on(driver)
