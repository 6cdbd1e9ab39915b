"""Level 0 of a larger epoch runs in several threads: the answer is that of one."""

import threading

import pytest

import headrace as hr
from headrace.connect.embedded.source import EmbeddedSource
from headrace.engine import dealing
from headrace.engine.inputs import Inputs

SCHEMA = "id int, user string, amount int, at timestamp"


def answer(storage, rows):
    with hr.Log(storage / "log") as log:
        topic = log.create_topic("given", SCHEMA, event_time="at", partitions=3)
        for number in range(3):
            topic.append(rows[number::3], partition=number)
    app = hr.App("dealt", storage=storage, shards=4, on_error="dead_letter")
    given = app.stream("given", SCHEMA, event_time="at", out_of_order="1 hour")
    kept = given.where("100 / amount > 1").named("kept")
    kept.group_by("user").window(hr.tumbling("1 minute", grace="1 hour")).agg(n="count(*)", s="sum(amount)").named(
        "windows"
    ).to_view("windows")
    kept.to_topic("out")
    running = app.start(carrier="in-process")
    try:
        running.await_caught_up(timeout=300)
    finally:
        running.stop()
    with hr.Log(storage / "log") as log:
        topic = log.topic("out")
        out = [row["id"] for part, end in topic.end_offsets().items() for row in topic.read(part, 0, end).to_pylist()]
        dead = sum(log.topic("given.dead").end_offsets().values())
    return sorted(app.view("windows").to_pylist(), key=str), sorted(out), dead


@pytest.mark.parametrize(
    ("few", "mapped"), [(7, True), (7, False), (1 << 30, True)], ids=["reading", "grouping", "one_thread"]
)
def test_level_zero_in_threads_gives_what_one_thread_gives(tmp_path, monkeypatch, few, mapped):
    """Each thread reads its part of what is columns already; what is decoded is read by the one that plans."""
    parts, readers = [], set()
    dealt, read = dealing.packed, Inputs.read

    def reading(self, offsets, columns):
        readers.add(threading.current_thread().name.rstrip("_0123456789"))
        return read(self, offsets, columns)

    def packed(ranges, most):
        parts.append(dealt(ranges, most))
        return parts[-1]

    monkeypatch.setattr(dealing, "FEW_ROWS", few)
    monkeypatch.setattr(dealing, "packed", packed)
    monkeypatch.setattr(Inputs, "read", reading)
    monkeypatch.setattr(EmbeddedSource, "mapped", mapped)
    monkeypatch.setattr("headrace.engine.operation.local.cores", lambda: 3)
    rows = [
        {"id": n, "user": "abc"[n % 3], "amount": n % 60, "at": f"2026-01-31 10:{n % 50:02}:{n % 60:02}"}
        for n in range(600)
    ]
    windows, out, dead = answer(tmp_path, rows)
    assert any(len(each) == 3 for each in parts) == (few == 7)
    assert readers == {"headrace-shard" if mapped else "headrace-epochs"}
    good = [row for row in rows if row["amount"] and 100 / row["amount"] > 1]
    assert out == [row["id"] for row in good]
    assert dead == 10
    assert sum(row["n"] for row in windows) == len(good)
    assert sum(row["s"] for row in windows) == sum(row["amount"] for row in good)
