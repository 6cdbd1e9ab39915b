"""The programs of docs/brokers.md run, against real brokers where there is one."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from broker_cases import Filled, until
from headrace.base.schema import as_schema
from headrace.base.time import ManualClock

PAGE = Path(__file__).parents[2] / "docs" / "brokers.md"


def program(section, folder, **replaced):
    """Write the program of a section to a folder, with texts replaced, and return its app."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for old, new in {".headrace/": f"{folder}/", **replaced}.items():
        assert old in code, f"the program has {old}"
        code = code.replace(old, new)
    file = folder / "shown_program.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("shown_program", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def test_the_program_with_rabbitmq_runs(rabbit, tmp_path, monkeypatch):
    pytest.importorskip("pika")
    monkeypatch.setenv("RABBIT_PASSWORD", "guest")
    rabbit.declare()
    out = rabbit.declare(f"{rabbit.name}.alerts")
    with rabbit.channel() as channel:
        channel.queue_bind(out, "amq.topic", "alerts.*")
    replaced = {"@localhost/": f"@127.0.0.1:{rabbit.server.port}/", '"orders", metadata': f'"{rabbit.name}", metadata'}
    app = program("RabbitMQ", tmp_path, **replaced)
    orders = [{"id": i, "city": "Kiel", "price": 60 * i, "at": "2026-01-31 10:00:00"} for i in range(4)]
    rabbit.send(*(json.dumps(each).encode() for each in orders))
    with app.start(carrier="in-process"):
        until(lambda: rabbit.waiting(out) == 2, "alerts are sent")
    assert [json.loads(body)["price"] for _, body in rabbit.taken(out)] == [120, 180]


def test_the_program_with_stomp_runs(artemis, tmp_path, monkeypatch):
    pytest.importorskip("stomp")
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.stomp.connection import Connection

    monkeypatch.setenv("STOMP_PASSWORD", "wonder")
    replaced = {"@localhost:61613": f"@127.0.0.1:{artemis.port}", '"orders", metadata': '"page", metadata'}
    app = program("ActiveMQ and other STOMP brokers", tmp_path, **replaced)
    with closing(Connection(BrokerAddress(artemis.url()))) as connection:
        for i in range(4):
            order = {"id": i, "city": "Kiel", "price": 60 * i, "at": "2026-01-31 10:00:00"}
            connection.send("SEND", {"destination": "page", "destination-type": "ANYCAST"}, json.dumps(order).encode())
        about = {"id": "1", "destination": "alerts.Kiel", "ack": "auto", "subscription-type": "ANYCAST"}
        connection.ask("SUBSCRIBE", about)
        found = []
        with app.start(carrier="in-process"):
            until(lambda: found.extend(connection.messages(0.1)) or len(found) == 2, "alerts are sent")
    assert [json.loads(each.body)["price"] for each in found] == [120, 180]


def test_the_program_with_amqp_runs(artemis, tmp_path, monkeypatch):
    pytest.importorskip("proton")
    from headrace.connect import amqp

    monkeypatch.setenv("AMQP_PASSWORD", "wonder")
    url = f"amqp://ada:env:AMQP_PASSWORD@127.0.0.1:{artemis.port}"
    replaced = {"@localhost:5672": f"@127.0.0.1:{artemis.port}", '"orders", metadata': '"page.in", metadata'}
    app = program("AMQP 1.0: ActiveMQ Artemis and others", tmp_path, **replaced, alerts="page.alerts")
    orders = [{"id": i, "city": "Kiel", "price": 60 * i, "at": datetime(2026, 1, 31, tzinfo=UTC)} for i in range(4)]
    schema = as_schema("id int, city string, price int, at timestamp")
    sent = amqp.destination(url, "page.in").for_step(schema=schema, key=None, is_table=False, sealed=frozenset())
    writer = sent.open(writer="page", clock=ManualClock())
    writer.publish(0, iter(pa.Table.from_pylist(orders, schema=schema).to_batches()))
    writer.close()
    with app.start(carrier="in-process"), Filled(tmp_path / "log").by(amqp.queue(url, "page.alerts.Kiel")) as run:
        run.has([2, 3])


@pytest.mark.prove
def test_the_program_with_pulsar_runs(pulsar_of_the_run, tmp_path, monkeypatch):
    client = pytest.importorskip("pulsar")
    monkeypatch.setenv("PULSAR_TOKEN", "unused")
    own = "persistent://public/once/page"
    replaced = {":env:PULSAR_TOKEN@localhost:6650": f"127.0.0.1:{pulsar_of_the_run.port}"}
    replaced |= {'BROKER, "orders"': f'BROKER, "{own}"', '"alerts-': f'"{own}-'}
    app = program("Apache Pulsar", tmp_path, **replaced)
    session = client.Client(pulsar_of_the_run.url(), logger=client.FileLogger(client.LoggerLevel.Error, os.devnull))
    with closing(session):
        producer = session.create_producer(own)
        for i in range(4):
            order = {"id": i, "city": "Kiel", "price": 60 * i, "at": "2026-01-31 10:00:00"}
            producer.send(json.dumps(order).encode())
        reader = session.create_reader(f"{own}-Kiel", client.MessageId.earliest)
        with app.start(carrier="in-process"):
            found = [json.loads(reader.read_next(60_000).data()) for _ in range(2)]
    assert [each["price"] for each in found] == [120, 180]
