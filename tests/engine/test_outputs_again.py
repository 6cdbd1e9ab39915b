"""After a whole reset that appends all output again, a table's changelog has the keys of the table, and no others."""

from __future__ import annotations

from contextlib import suppress

import pytest
from disturbed import AROUND_THE_COMMIT, points
from test_fill import armed_at

import headrace as hr
from headrace.engine.program.reset import reset
from headrace.log import Log
from headrace.testing import Driver
from headrace.testing.faults import Crash


def app_of(name="again"):
    """An app whose table is in a topic as a changelog, and as rows; `name`: another app's."""
    app = hr.App(name)
    users = app.table("users", "id int, name string", key="id")
    users.where("name <> 'nobody'").to_topic("named")
    users.to_view("all")
    app.stream("visits", "id int").to_topic("visited")
    return app


@pytest.fixture
def storage(tmp_path):
    """Return the storage of the app after it was reset; one of three users was deleted since it ran last."""
    with Driver(app_of(), storage=tmp_path) as driver:
        driver.send("users", *({"id": n, "name": f"u{n}"} for n in range(3)))
        driver.send("visits", {"id": 1})
        driver.run()
        driver.delete("users", id=1)
    reset(app_of().plan(), tmp_path, sync=False)
    return tmp_path


def records(storage, name="named"):
    with Log(storage / "log", fsync=False) as log:
        topic = log.topic(name)
        return [row for number, end in topic.end_offsets().items() for row in topic.read(number, 0, end).to_pylist()]


def latest(storage):
    """Return the names that a reader of the changelog knows, by id."""
    last = {row["id"]: row for row in records(storage)}
    return {number: row["name"] for number, row in last.items() if not row["_deleted"]}


def test_a_key_that_the_table_has_lost_by_then_is_not_in_its_changelog(storage):
    with Driver(app_of(), storage=storage) as driver:
        driver.run()
        assert [row["id"] for row in driver.view("all")] == [0, 2]
    assert latest(storage) == {0: "u0", 2: "u2"}
    assert len(records(storage, "visited")) == 2, "rows of a stream are appended again"


@pytest.mark.parametrize("point", points(*AROUND_THE_COMMIT))
def test_a_start_that_crashes_at_any_point_withdraws_each_key_once(storage, point, monkeypatch):
    with monkeypatch.context() as armed, suppress(Crash):
        armed.setattr("headrace.testing.driver.Faults", lambda: armed_at(point))
        Driver(app_of(), storage=storage).close()
    with Driver(app_of(), storage=storage) as driver:
        driver.run()
    assert latest(storage) == {0: "u0", 2: "u2"}
    assert sum(row["_deleted"] for row in records(storage)) == 3


def test_a_lost_commit_of_the_withdrawal_withdraws_nothing_again(storage):
    Driver(app_of(), storage=storage).close()
    (storage / "epochs" / "000000000000.json").unlink()
    with Driver(app_of(), storage=storage) as driver:
        driver.run()
    assert latest(storage) == {0: "u0", 2: "u2"}
    assert sum(row["_deleted"] for row in records(storage)) == 3


def test_nothing_is_withdrawn_again_by_later_starts(storage):
    for _ in range(3):
        with Driver(app_of(), storage=storage) as driver:
            driver.run()
    assert sum(row["_deleted"] for row in records(storage)) == 3


def test_a_topic_that_another_app_writes_too_is_left_as_it_is(storage, tmp_path, caplog):
    other = hr.App("other", topics=f"log:{storage / 'log'}")
    other.table("guests", "id int, name string", key="id").to_topic("named")
    with Driver(other, storage=tmp_path / "other") as driver:
        driver.send("guests", {"id": 9, "name": "guest"})
        driver.run()
    with Driver(app_of(), storage=storage) as driver:
        driver.run()
    assert latest(storage) == {0: "u0", 1: "u1", 2: "u2", 9: "guest"}
    assert "other wrote to it too" in caplog.text


def test_a_topic_that_cannot_be_read_does_not_stop_the_app(storage, caplog):
    """Such a reset is a way out of damage: the app starts, and says what the topic keeps."""
    segment = next((storage / "log").glob("topics/named/0/*.segment"))
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    with Driver(app_of(), storage=storage) as driver:
        driver.run()
        assert [row["id"] for row in driver.view("all")] == [0, 2]
    assert "keeps the keys that it has" in caplog.text
