"""Stores compared with their tables and repaired; and what of a person is left in them after a deletion."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import root
from headrace.connect import delta, parquet, search
from headrace.testing import Driver

PROGRAM = """
import headrace as hr
from headrace.connect import delta, duckdb, parquet, redis, search

app = hr.App("shop", storage="shop")
people = app.table("people", "id int, email string, n double", key="id", private={{"email": "id"}})
for store in (duckdb.table("x.duckdb", "people"), parquet.folder("folder"), delta.table("lake"),
              redis.hashes("{url}", "h:"), redis.keys("{url}", "k:"), search.tantivy("index", memory_bytes=15_000_000)):
    people.to(store)
"""


def stored(url, names):
    """Return what each store has: emails by id."""
    import redis

    rows = {
        "duckdb": duckdb.connect("x.duckdb", read_only=True).execute("SELECT id, email FROM people").fetchall(),
        "parquet": duckdb.sql(f"SELECT id, email FROM ({parquet.sql('folder')})").fetchall(),
        "search": [(row["id"], row["email"]) for row in search.query("index", "*", limit=100)],
    }
    import deltalake

    lake = [f"'{each.removeprefix('file://')}'" for each in deltalake.DeltaTable("lake").file_uris()]
    rows["delta"] = duckdb.sql(f"SELECT id, email FROM read_parquet([{','.join(lake)}])").fetchall() if lake else []
    with redis.Redis.from_url(url, decode_responses=True) as client:
        hashes = [client.hgetall(key) for key in client.scan_iter("h:*")]
        texts = [json.loads(client.get(key)) for key in client.scan_iter("k:*")]
    rows["hashes"] = [(int(each["id"]), each.get("email")) for each in hashes]
    rows["keys"] = [(each["id"], each["email"]) for each in texts]
    assert set(rows) == set(names)
    return {name: dict(found) for name, found in rows.items()}


ALL = ("duckdb", "parquet", "search", "delta", "hashes", "keys")


@pytest.fixture
def shop(redis_of_the_run, tmp_path, monkeypatch):
    for needed in ("redis", "tantivy", "deltalake"):
        pytest.importorskip(needed)
    import redis

    redis_of_the_run.start()
    monkeypatch.chdir(tmp_path)
    url = redis_of_the_run.url()
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    (tmp_path / "app.py").write_text(PROGRAM.format(url=url))

    def run(*rows):
        space: dict = {}
        exec((tmp_path / "app.py").read_text(), space)  # noqa: S102 -- the program of this test
        with Driver(space["app"], storage=tmp_path / "shop") as driver:
            driver.send("people", *rows)
            driver.run()

    return url, run


def check(*options):
    result = CliRunner().invoke(root, ["sync", "check", "app.py", "--json", *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    answer = json.loads(result.output)
    assert len(answer["sinks"]) == len(ALL)
    return {
        each["sink"]: tuple(each["difference"][name] for name in ("missing", "other", "extra"))
        for each in answer["sinks"]
    }


PEOPLE = [{"id": i, "email": f"p{i}@x.org", "n": 0.1 * i} for i in range(1, 6)]


def test_what_somebody_changed_is_found_and_repaired(shop):
    """A row deleted, one changed and one added in each store; afterwards each is level, and the app goes on."""
    import redis

    url, run = shop
    run(*PEOPLE)
    wanted = {i: f"p{i}@x.org" for i in range(1, 6)}
    assert stored(url, ALL) == dict.fromkeys(ALL, wanted)
    assert set(check().values()) == {(0, 0, 0)}
    with duckdb.connect("x.duckdb") as sql:
        sql.execute("DELETE FROM people WHERE id = 1; UPDATE people SET n = 7 WHERE id = 2")
        sql.execute("INSERT INTO people VALUES (99, 'x', 1)")
    with redis.Redis.from_url(url) as client:
        client.delete("h:1", "k:1", "k:2")
        client.hset("h:2", "n", "7")
        client.hset("h:99", "id", "99")
        client.hset("k:2", "of", "another type")
        client.set("k:99", "no JSON")
    change = [("_deleted", 1), ("changed", 2), ("added", 99)]
    for store in (parquet.folder("folder"), delta.table("lake"), search.tantivy("index", memory_bytes=15_000_000)):
        _spoil(store, change)
    assert set(check().values()) == {(1, 1, 1)}
    assert set(check("--repair").values()) == {(1, 1, 1)}
    assert set(check().values()) == {(0, 0, 0)}
    assert stored(url, ALL) == dict.fromkeys(ALL, wanted)
    run({"id": 2, "_deleted": True})
    assert stored(url, ALL) == {name: {1: wanted[1]} | {i: wanted[i] for i in (3, 4, 5)} for name in ALL}


def _spoil(store, change):
    import pyarrow as pa

    from headrace.base.time import SystemClock

    schema = pa.schema([("id", pa.int32()), ("email", pa.string()), ("n", pa.float64())])
    sink = store.for_step(schema=schema, key=("id",), is_table=True, sealed=frozenset())
    ids = pa.array([number for _, number in change], pa.int32())
    rows = {"id": ids, "email": pa.array([f"p{number}@x.org" for _, number in change]), "n": pa.array([7.0] * 3)}
    rows |= {"_deleted": pa.array([what == "_deleted" for what, _ in change]), "_time": pa.array([0] * 3, pa.int64())}
    writer = sink.open(writer="somebody/else/s", clock=SystemClock())
    writer.publish(0, iter([pa.record_batch(rows)]))
    writer.close()


def test_a_forgotten_person_is_gone_from_the_stores(shop):
    """`forget` changes no row: a repair takes the value out. A deleted row is gone with its epoch."""
    url, run = shop
    run(*PEOPLE)
    with hr.Log(Path("shop") / "log") as log:
        assert log.topic("people").forget(1) == 1
    assert {found[1] for found in stored(url, ALL).values()} == {"p1@x.org"}
    assert set(check("--repair").values()) == {(0, 1, 0)}
    assert {found[1] for found in stored(url, ALL).values()} == {None}
    run({"id": 3, "_deleted": True})
    assert all(3 not in found for found in stored(url, ALL).values())
    parquet.compact("folder", keep="0 seconds")
    for gone in (b"p1@x.org", b"p3@x.org"):
        for each in Path("folder").rglob("*.parquet"):
            assert gone not in each.read_bytes()
