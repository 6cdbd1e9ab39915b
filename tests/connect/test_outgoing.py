"""Rows become messages of brokers, with the same ids each time."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.base.errors import InvalidPlan, UnknownColumn
from headrace.connect.messages.address import BrokerAddress
from headrace.connect.messages.writing import MessageSink, outgoing, writing

SCHEMA = pa.schema([("id", pa.int32()), ("city", pa.string()), ("price", pa.int64())])


class Somewhere(MessageSink):
    """A sink that only makes messages."""

    where = "somewhere"


def sink(address="out", *, key=None, table=False, **options):
    made = Somewhere(how=writing(address, options))
    return made.for_step(schema=SCHEMA, key=key, is_table=table, sealed=frozenset())


def batch(*rows):
    ids, cities, deleted = zip(*rows, strict=True)
    count = len(rows)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int32()),
            "city": pa.array(cities, pa.string()),
            "price": pa.array([5] * count, pa.int64()),
            "_time": pa.array([1_000] * count, pa.int64()),
            "_deleted": pa.array(deleted),
        }
    )


def messages(of, *batches, writer="app/1/sink", epoch=3):
    return [each for some in outgoing(of, writer, epoch, iter(batches)) for each in some]


def test_ids_are_the_same_however_rows_are_batched():
    rows = [(i, "a", False) for i in range(1_500)]
    whole, parts = batch(*rows), [batch(row) for row in rows[:40]]
    first = messages(sink(), whole)
    assert [each.id for each in first] == [f"app/1/sink/3/{n}" for n in range(1_500)]
    assert [each[:2] for each in messages(sink(), *parts)] == [each[:2] for each in first[:40]]


def test_a_long_writer_has_short_ids():
    (one,) = messages(sink(), batch((1, "a", False)), writer="x" * 200)
    (other,) = messages(sink(), batch((1, "a", False)), writer="x" * 201)
    assert len(one.id) < 100
    assert one.id != other.id


def test_rows_have_bodies_headers_keys_and_addresses():
    made = sink("orders.{city}.{id}", key=None, headers={"town": "city"})
    one, two = messages(made, batch((1, "Kiel", False), (2, None, False)))
    assert (json.loads(one.body), one.key, one.time) == ({"id": 1, "city": "Kiel", "price": 5}, None, 1_000)
    assert (one.address, two.address) == ("orders.Kiel.1", "orders..2")
    assert (one.headers, two.headers) == ({"town": "Kiel"}, {})


def test_a_deleted_row_of_a_table_has_its_key_and_no_body():
    made = sink("{id}", key=("id",), table=True)
    one, two = messages(made, batch((1, "a", False), (1, None, True)))
    assert one.body
    assert [(each.key, each.address) for each in (one, two)] == [(b"1", "1")] * 2
    assert two.body == b""


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: sink(frm="json"), InvalidPlan),
        (lambda: sink("{town}"), UnknownColumn),
        (lambda: sink(headers={"h": "town"}), UnknownColumn),
        (lambda: sink(table=True), InvalidPlan),
        (lambda: sink("{city}", key=("id",), table=True), InvalidPlan),
        (
            lambda: Somewhere(how=writing("a", {"key": "city"})).for_step(
                schema=SCHEMA, key=("id",), is_table=True, sealed=frozenset()
            ),
            InvalidPlan,
        ),
        (
            lambda: Somewhere(how=writing("a", {})).for_step(
                schema=SCHEMA, key=None, is_table=False, sealed=frozenset({"city"})
            ),
            InvalidPlan,
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_when_it_is_declared(make, error):
    with pytest.raises(error):
        make()


def test_an_address_shows_no_password(monkeypatch):
    monkeypatch.setenv("WORD", "from:env")
    plain = BrokerAddress.parse("amqp://ann:p%40ss@host:1/v?x=1", schemes=["amqp"], example="amqp://host")
    named = BrokerAddress.parse("amqp://ann:env:WORD@host", schemes=["amqp"], example="amqp://host")
    assert plain.login() == ("ann", "p@ss")
    assert named.login() == ("ann", "from:env")
    assert (plain.host, plain.port(9), named.port(9), plain.path, named.path) == ("host", 1, 9, "v", None)
    assert plain.options == {"x": "1"}
    assert plain.place == "amqp://host:1/v"
    assert "p@ss" not in plain.hidden("ann p@ss refused")
    assert "p%40ss" not in repr(plain)
    monkeypatch.delenv("WORD")
    with pytest.raises(InvalidPlan, match=r"\$WORD"):
        named.login()


@pytest.mark.parametrize("text", ["amqp://", "http://host", "amqp://host:port", "amqp://[::1", 7, "amqp://u:s3cret@:1"])
def test_no_address_is_refused_and_not_shown(text):
    with pytest.raises(InvalidPlan) as raised:
        BrokerAddress.parse(text, schemes=["amqp"], example="amqp://host")
    assert "s3cret" not in str(raised.value)
