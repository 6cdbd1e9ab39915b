"""ZeroMQ and nng: what is pushed, published or asked is landed; what is pushed and published arrives."""

from __future__ import annotations

import json
import socket
from importlib import import_module

import pyarrow as pa
import pytest

from broker_cases import WRITER, Filled, batch, for_rows, ids_of, until
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.testing.connectors import COLUMNS

LIBRARIES = ["zeromq", "nng"]
CLIENTS = {"zeromq": "zmq", "nng": "pynng"}


def one(i):
    return json.dumps({"id": i, "text": f"t{i}"}).encode()


@pytest.fixture(params=LIBRARIES)
def library(request):
    pytest.importorskip(CLIENTS[request.param])
    return import_module(f"headrace.connect.{request.param}")


@pytest.fixture
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def filled(tmp_path):
    return Filled(tmp_path / "log")


def test_what_is_pushed_is_pulled(library, url, filled):
    with filled.by(library.pull(url)) as run:
        writer = for_rows(library.push(url)).open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch(range(50))]))
        until(lambda: len(ids_of(run.log)) == 50)
        writer.close()
        assert sorted(ids_of(run.log)) == list(range(50))


def test_what_is_published_reaches_those_who_subscribed_to_its_topic(library, url, tmp_path):
    filled = Filled(tmp_path / "log", pa.schema([*COLUMNS, ("topic", pa.string())]))
    writer = for_rows(library.publish(url, "row.{text}|")).open(writer=WRITER, clock=ManualClock())
    with filled.by(library.subscribe(url, ("row.t1|", "row.t3|"), metadata={"topic": "topic"})) as run:
        until(lambda: writer.publish(0, iter([batch(range(5))])) or len(set(ids_of(run.log))) == 2)
        assert {(row["id"], row["topic"]) for row in run.rows()} == {(1, "row.t1|"), (3, "row.t3|")}
    writer.close()


def test_a_question_is_answered_when_its_record_is_durable(library, url, filled):
    def ask(client, body):
        client.send(body)
        return client.recv()

    with filled.by(library.reply(url)) as run:
        if library.__name__.endswith("zeromq"):
            import zmq

            context = zmq.Context()
            client = context.socket(zmq.REQ)
            client.connect(url)
        else:
            import pynng

            context, client = None, pynng.Req0(dial=url, block_on_dial=False, recv_timeout=60_000)
        assert ask(client, one(1)) == b"ok"
        assert ids_of(run.log) == [1]
        assert ask(client, b"bad") == b"refused: it is no JSON object"
        assert ask(client, one(2)) == b"ok"
        assert ids_of(run.log) == [1, 2]
        client.close()
        if context is not None:
            context.term()


def test_a_bad_message_is_a_dead_letter(library, url, filled):
    schema = pa.schema([("value", pa.string()), ("_time", pa.int64())])
    sink = library.push(url, format="text").for_step(
        schema=pa.schema([("value", pa.string())]), key=None, is_table=False, sealed=frozenset()
    )
    with filled.by(library.pull(url)) as run:
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([pa.record_batch({"value": ["bad"], "_time": [0]}, schema=schema)]))
        until(lambda: run.rows("landed.dead"))
        writer.close()


def test_where_nobody_pulls_the_sink_is_unavailable(library, url, monkeypatch):
    monkeypatch.setattr(f"{library.__name__}.sending.SEND_SECONDS", 0.05)
    sink = for_rows(library.push(url))
    writer = sink.open(writer=WRITER, clock=ManualClock())
    with pytest.raises(Unavailable, match="nobody pulls from tcp://"):
        writer.publish(0, iter([batch(range(20_000))]))
    writer.close()


def test_an_address_in_use_is_unavailable_and_one_that_is_none_is_refused(library, url, filled):
    port = int(url.rpartition(":")[2])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with filled.by(library.pull(url)) as run:
            until(lambda: run.status()["state"] == "retrying")
    for wrong in ("localhost:1", "http://h:1", 7):
        with pytest.raises(InvalidPlan, match="is no address of a socket"):
            library.pull(wrong)
        with pytest.raises(InvalidPlan, match="is no address of a socket"):
            library.push(wrong)
