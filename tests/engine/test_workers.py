"""What a worker does when a task arrives in it."""

import gc
import pickle
import socket

import pytest

tasks = pytest.importorskip("headrace.engine.spark.tasks")
workers = pytest.importorskip("headrace.engine.spark.workers")


@pytest.fixture
def connection():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            yield one


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux alone can be told to acknowledge at once")
def test_a_task_that_arrives_hurries_the_connections_of_its_worker(connection, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_tasks", 1_000)
    assert not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    job = tasks.Job(
        app_id="a",
        program=None,
        storage=tmp_path,
        topics=None,
        sync=True,
        inputs={},
        fault=print,
        base=3,
        small=0,
        query="q",
    )
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301 -- what was just pickled
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_is_loaded_for_good_is_not_searched_for_garbage_after_the_second_task(monkeypatch):
    monkeypatch.setattr(workers, "_tasks", 0)
    frozen = gc.get_freeze_count()
    try:
        workers.prepare()
        assert gc.get_freeze_count() == frozen
        workers.prepare()
        assert gc.get_freeze_count() > frozen + 10_000
    finally:
        gc.unfreeze()
