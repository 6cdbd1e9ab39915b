"""The databases that a worker of Spark keeps for an app's shards."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest

from headrace.engine.spark import tasks


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """What a worker keeps, empty."""
    kept = SimpleNamespace(caches=OrderedDict(), hosts=OrderedDict())
    monkeypatch.setattr(tasks, "_CACHES", kept.caches)
    monkeypatch.setattr(tasks, "_HOSTS", kept.hosts)
    return kept


def cache(app, number=1, shard=0):
    return tasks.cache(SimpleNamespace(app_id=app), number, SimpleNamespace(shard=shard))


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
    for number in range(tasks.MOST_HOSTS + 3):
        with cache(f"app {number}"):
            pass
    assert len(kept.hosts) == len(kept.caches) == tasks.MOST_HOSTS
