"""Redis as a cache that follows a table."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from crashing_sinks import WRITER, Kept, batches, check_each_crash, check_zombie, epochs, expected, for_rows, write

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import AccessRefused, OutputLost, Unavailable
from headrace.base.time import ManualClock
from headrace.connect.entry_keys import entry_keys
from headrace.connect.store import StoreRefused, WriterFenced
from headrace.testing import Driver, check_sink

redis = pytest.importorskip("redis")
from headrace.connect import redis as cache  # noqa: E402 - only where there is a client

BOTH = pytest.mark.parametrize("form", ["hashes", "keys"])


@pytest.fixture
def server(redis_of_the_run):
    redis_of_the_run.start()
    client = redis.Redis(port=redis_of_the_run.port)
    client.flushall()
    client.close()
    yield redis_of_the_run
    redis_of_the_run.start()


@pytest.fixture
def client(server):
    client = redis.Redis(port=server.port, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def make(server):
    number = itertools.count()

    def fresh(form="hashes", **options):
        database = next(number)
        sink = getattr(cache, form)(server.url(database), "t:", **options)
        return sink, lambda: read(server.port, database, form)

    return fresh


def read(port, database, form):
    with redis.Redis(port=port, db=database, decode_responses=True) as client:
        rows = []
        for key in client.scan_iter("t:*", count=1000):
            row = client.hgetall(key) if form == "hashes" else json.loads(client.get(key))
            number = row.get("id")
            assert key == f"t:{'%null' if number is None else number}"
            rows.append({"id": None if number is None else int(number), "text": row.get("text")})
        return rows


@BOTH
def test_a_cache_is_a_sink(make, form):
    def kept():
        sink, seen = make(form)
        return Kept(for_rows(sink, table=True), seen)

    check_sink(kept)


@BOTH
def test_a_crash_at_any_step_leaves_each_epoch_once(make, form):
    check_each_crash(lambda: make(form), table=True)


def test_a_crash_between_the_calls_of_a_large_epoch_is_mended_by_its_repetition(make, monkeypatch):
    monkeypatch.setattr("headrace.connect.redis.cache.MOST_ARGUMENTS", 1)
    check_each_crash(make, table=True)


@BOTH
def test_an_older_writer_is_fenced(make, form):
    check_zombie(lambda: make(form), WriterFenced, table=True)


def test_readers_see_an_epoch_as_a_whole(make, client):
    """A reader that reads many entries at once never sees two epochs mixed."""
    sink, _ = make("keys")
    sink = for_rows(sink, table=True)
    writer = sink.open(writer=WRITER, clock=ManualClock())
    stop, mixed = threading.Event(), []
    names = [f"t:{i}" for i in range(300)]

    def look():
        while not stop.is_set():
            texts = {json.loads(each)["text"] if each else None for each in client.mget(names)}
            if len(texts) > 1:
                mixed.append(texts)

    reader = threading.Thread(target=look)
    reader.start()
    for epoch in range(40):
        writer.publish(epoch, batches([(i, f"e{epoch}", False) for i in range(300)], table=True))
    stop.set()
    reader.join()
    writer.close()
    assert not mixed


def test_a_killed_server_is_tried_again_and_has_everything(make, server):
    sink, seen = make()
    sink = for_rows(sink, table=True)
    writer, whole = sink.open(writer=WRITER, clock=ManualClock()), epochs(table=True)
    writer.publish(0, batches(whole[0], table=True))
    server.kill()
    with pytest.raises(Unavailable):
        writer.publish(1, batches(whole[1], table=True))
    server.start()
    for epoch in list(whole)[1:]:
        writer.publish(epoch, batches(whole[epoch], table=True))
    writer.close()
    assert sorted(((row["id"], row["text"]) for row in seen()), key=str) == expected(table=True)


def test_an_emptied_server_is_said(make, client):
    sink, _ = make()
    writer = for_rows(sink, table=True).open(writer=WRITER, clock=ManualClock())
    writer.publish(0, batches(epochs(table=True)[0], table=True))
    client.flushall()
    with pytest.raises(OutputLost, match="emptied"):
        writer.publish(1, batches(epochs(table=True)[1], table=True))
    writer.close()


def test_entries_vanish_after_their_time(make, client):
    sink, _ = make("keys", ttl="1 hour")
    write(for_rows(sink, table=True), table=True)
    assert 3_590_000 < client.pttl("t:7") <= 3_600_000
    assert client.pttl(f"_headrace:{WRITER}") == -1


def test_failures_have_names_and_show_no_password(make, client, server):
    client.execute_command("ACL", "SETUSER", "ann", "on", ">s3cret", "~none:*", "+@all")
    for login in ("ann:wrong", "ann:s3cret"):
        sink = for_rows(cache.hashes(server.url(login=login), "t:"), table=True)
        with pytest.raises(AccessRefused) as refused:
            sink.open(writer=WRITER, clock=ManualClock())
        assert "s3cret" not in f"{refused.value}{sink!r}{sink.name}"
    sink = for_rows(make()[0], table=True)
    writer = sink.open(writer=WRITER, clock=ManualClock())
    client.execute_command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(Unavailable, match="takes no writes now"):
            writer.publish(0, batches(epochs(table=True)[0], table=True))
    finally:
        client.execute_command("CONFIG", "SET", "maxmemory", "0")
    client.config_set("proto-max-bulk-len", 1 << 20)
    try:
        with pytest.raises((StoreRefused, Unavailable)):
            writer.publish(0, batches([(1, "x" * (3 << 20), False)], table=True))
    finally:
        client.config_set("proto-max-bulk-len", 512 << 20)
    writer.close()
    with pytest.raises(InvalidPlan, match="a stream has no key"):
        for_rows(sink, table=False)


def test_keys_of_rows_are_never_the_same():
    """Nulls, separators and escapes in every place of a key of two columns."""
    texts = [None, "", "a", ":", "%", "%3A", "%null", "a:b", "null", "%25"]
    pairs = list(itertools.product(texts, texts))
    rows = pa.record_batch({"a": pa.array([a for a, _ in pairs]), "b": pa.array([b for _, b in pairs])})
    assert len(set(entry_keys(rows, ["a", "b"]).to_pylist())) == len(pairs)
    assert len(set(entry_keys(rows, ["a"]).to_pylist())) == len(texts)


def test_a_table_of_an_app_is_in_a_cache(client, server):
    """Every type as text, as JSON has it; what is withdrawn is deleted; what is forgotten is gone."""
    app = hr.App("shop")
    kinds = "id int, price decimal(9,2), at timestamp, tags array<string>, raw binary, x double, ok boolean"
    items = app.table("items", kinds, key="id")
    items.to(cache.hashes(server.url(), "item:"))
    items.group_by("ok").agg(n="count(*)").to(cache.keys(server.url(), "count:"))
    row = {"id": 1, "price": "2.5", "at": "2024-05-01T10:00:00Z", "tags": ["ä"], "raw": b"\x00", "x": 0.1, "ok": True}
    with Driver(app) as driver:
        driver.send("items", row, row | {"id": 2, "ok": None})
        driver.run()
        assert client.hgetall("item:1") == {
            "id": "1", "price": "2.50", "at": "2024-05-01T10:00:00.000000Z", "tags": '["ä"]', "raw": "AA==", "x": "0.1",
            "ok": "true",
        }  # fmt: skip
        assert client.get("count:%null") == '{"ok":null,"n":1}'
        driver.send("items", {"id": 2, "_deleted": True})
        driver.run()
        assert not client.exists("item:2", "count:%null")


def test_twenty_thousand_rows_are_a_few_calls(make):
    """No call for each key: the server counts them."""
    sink, seen = make()
    sink = for_rows(replace(sink), table=True)
    writer = sink.open(writer=WRITER, clock=ManualClock())
    before = writer.client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    ids = pa.array(range(20_000), pa.int32())
    rows = {"id": ids, "text": ids.cast(pa.string()), "_time": ids.cast(pa.int64())}
    rows["_deleted"] = pa.repeat(pa.scalar(False), 20_000)  # noqa: FBT003 -- a value
    writer.publish(0, iter([pa.record_batch(rows)]))
    after = writer.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    writer.close()
    assert after - before <= 3
    assert len(seen()) == 20_000
