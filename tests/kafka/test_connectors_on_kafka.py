"""Connectors as a service whose topics are in a real broker."""

import json
import time
import uuid

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.connect import files
from headrace.engine.connectors.checking import check_app
from headrace.engine.connectors.offsets import forget_offset, offsets_of, set_offset
from headrace.engine.connectors.worker import Worker


def ran(app, tmp_path):
    worker = Worker([app], tmp_path / "group")
    deadline = time.monotonic() + 60
    while not worker.ended:
        worker.look()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return worker.close()


def test_a_worker_lands_in_kafka_and_offsets_are_moved_there(broker, tmp_path):
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(4)))
    app = hr.App(f"in{uuid.uuid4().hex[:6]}", storage=tmp_path / "in", topics=broker.address, shards=1)
    source = hr.feed(files.lines(lines, follow=False), "id int").where("id > 0")
    app.stream("a", source=source).to_view("v")
    assert dict(check_app(app)) == {"a": None}
    assert offsets_of(app) == {"a": None}
    assert ran(app, tmp_path)[f"{app.name}/a"]["rows"] == 3
    position = json.loads(offsets_of(app)["a"])
    assert position["bytes"] == lines.stat().st_size
    set_offset(app, "a", json.dumps(position | {"bytes": position["bytes"] // 2}))
    assert ran(app, tmp_path)[f"{app.name}/a"]["rows"] == 2
    with pytest.raises(InvalidPlan, match="moved, and not be forgotten"):
        forget_offset(app, "a")
    with app.start(carrier="in-process") as running:
        running.await_caught_up(300)
        assert sorted(row["id"] for row in app.view("v").to_pylist()) == [1, 2, 2, 3, 3]
