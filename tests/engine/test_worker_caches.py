"""The databases that a worker of Spark keeps for an app's shards."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest

from headrace.engine.spark import caches


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """What a worker keeps, empty."""
    kept = SimpleNamespace(caches=caches.Idle(), hosts=OrderedDict())
    monkeypatch.setattr(caches, "IDLE", kept.caches)
    monkeypatch.setattr(caches, "_HOSTS", kept.hosts)
    return kept


def cache(app, shard=0, size=0):
    return caches.cache(app, 1, shard, size=size)


def test_a_cache_is_there_again_and_those_of_an_app_are_apart():
    with cache("a") as first, cache("a", shard=1) as other:
        first.run("CREATE TABLE kept AS SELECT 7 AS n")
        other.run("CREATE TABLE kept AS SELECT 8 AS n")
    with cache("a") as again:
        assert again is first
        assert again.rows("SELECT n FROM kept") == [(7,)]


def broken(kept):
    with cache("a") as duck:
        kept.hosts["a"].connection.close()
        duck.connection.close()
        raise ValueError("the first error")


def test_an_error_that_ends_the_database_of_an_app_is_told_and_the_next_task_has_another_one(kept):
    with cache("a", shard=1):
        pass
    with pytest.raises(ValueError, match="the first error"):
        broken(kept)
    assert not kept.hosts
    assert not kept.caches
    with cache("a") as duck:
        assert duck.rows("SELECT 1") == [(1,)]


def test_an_error_of_one_shard_leaves_the_caches_of_the_others():
    with cache("a", shard=1) as other:
        pass
    with pytest.raises(ValueError, match="one shard"), cache("a"):
        raise ValueError("one shard")
    with cache("a", shard=1) as again:
        assert again is other


def test_a_worker_keeps_the_databases_of_a_few_apps(kept):
    for number in range(caches.MOST_HOSTS + 3):
        with cache(f"app {number}"):
            pass
    assert len(kept.hosts) == len(kept.caches) == caches.MOST_HOSTS


def used(shard, size=0):
    """Use a shard's cache; whether it was kept since the last time."""
    with cache("a", shard=shard, size=size) as duck:
        kept = bool(duck.rows("SELECT 1 FROM duckdb_tables() WHERE database_name = current_database()"))
        duck.run("CREATE OR REPLACE TABLE kept AS SELECT 1 AS n")
    return kept


def test_a_worker_keeps_the_caches_of_many_shards():
    assert [used(shard) for shard in range(300)] == [False] * 300
    assert [used(shard) for shard in range(300)] == [True] * 300


def test_a_worker_keeps_those_caches_that_were_used_last_and_are_not_too_large_together(monkeypatch):
    monkeypatch.setattr(caches, "MOST_BYTES", 100)
    assert [used(shard, size=30) for shard in range(4)] == [False] * 4, "the first one had to go"
    assert [used(shard, size=30) for shard in (1, 2, 3)] == [True] * 3
    assert not used(0, size=10), "it was closed, and fits"
    assert [used(shard, size=30) for shard in (1, 2, 3)] == [True] * 3
    assert not used(4, size=60), "0, 1 and 2 have to go for it"
    assert [used(shard, size=0) for shard in (3, 4, 1)] == [True, True, False]


def test_a_worker_keeps_so_many_caches(monkeypatch):
    monkeypatch.setattr(caches, "MOST_CACHES", 3)
    assert [used(shard) for shard in range(4)] == [False] * 4
    assert [used(shard) for shard in (1, 2, 3, 0)] == [True, True, True, False]
