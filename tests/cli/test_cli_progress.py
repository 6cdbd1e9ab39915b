"""What `run` and `status` say: how fast it reads, what is in no result, and in which state an app is."""

import json

import pytest

import headrace as hr
from headrace.base.errors import UnknownView
from headrace.base.time import ManualClock
from headrace.cli.progress import LeftOut, Rate
from headrace.cli.status import say_status
from headrace.engine.operation.running import hold


def at(epoch, rows, *, lag=0, seconds=2.0, dead=0, late=0, keyless=0):
    """A status."""
    return {
        "epoch": epoch,
        "epoch_seconds": seconds,
        "lag": lag,
        "sources": {"orders": {"rows": rows, "dead": dead}},
        "steps": {"spent": {"late": late}},
        "dead": {"orders": {"rows": dead}, "topic:out": {"rows": keyless}},
    }


def test_the_rate_is_that_of_the_epochs_while_the_next_one_runs():
    """Epochs of three seconds, looked at four times a second: never 0 while it reads."""
    clock, seen = ManualClock(), []
    rate = Rate(clock)
    rate.of(at(None, 0, lag=9000))
    for moment in range(1, 49):
        clock.advance(0.25)
        epochs = moment // 12
        seen.append(rate.of(at(epochs - 1 if epochs else None, epochs * 3000, lag=9000, seconds=3.0)))
    assert seen[:11] == [0.0] * 11
    assert all(900 <= value <= 1100 for value in seen[11:])


def test_the_first_epoch_has_a_rate_at_once():
    clock = ManualClock()
    rate = Rate(clock)
    rate.of(at(None, 0, lag=5000))
    clock.advance(10)
    assert rate.of(at(0, 5000, seconds=2.0)) == 2500


def test_the_rate_of_an_app_that_has_nothing_to_read_falls_to_zero():
    clock = ManualClock()
    rate = Rate(clock)
    rate.of(at(0, 0))
    clock.advance(2)
    assert rate.of(at(1, 1000)) == 500
    clock.advance(2)
    assert rate.of(at(1, 1000)) == 250
    clock.advance(10)
    assert rate.of(at(1, 1000)) == 0


def test_what_is_left_out_is_said_once_and_again_when_it_has_doubled():
    clock = ManualClock()
    left_out = LeftOut({"orders": "orders_topic"}, file="shop.py", clock=clock)
    assert left_out.news(at(0, 10, dead=5), ended=False) == []
    (line,) = left_out.news(at(1, 20, dead=6), ended=False)
    assert line == (
        "1 record of orders: dead letters, with the reason: headrace topics consume orders_topic.dead --app shop.py"
    )
    assert left_out.news(at(2, 30, dead=6), ended=False) == []
    assert len(left_out.news(at(3, 30, dead=7, late=1), ended=False)) == 2
    assert left_out.news(at(4, 40, dead=8, late=1), ended=False) == []
    (last,) = left_out.news(at(5, 40, dead=8, late=1), ended=True)
    assert last.startswith("3 records of orders")
    assert left_out.news(at(5, 40, dead=8, late=1), ended=True) == []


def test_rows_that_have_no_record_and_are_dead_letters_are_said_too():
    left_out = LeftOut({}, file="shop.py", clock=ManualClock())
    left_out.news(at(0, 10), ended=False)
    (line,) = left_out.news(at(1, 10, keyless=2), ended=False)
    assert line == "2 rows of topic:out: dead letters; headrace status shop.py says why"


def test_what_a_feed_could_not_read_is_said_also_where_the_first_look_finds_it():
    left_out = LeftOut({"orders": "orders_topic"}, file="shop.py", clock=ManualClock())
    (line,) = left_out.news(at(0, 10) | {"feeds": {"orders": {"dead": 2}}}, ended=False)
    assert line.startswith("2 records of orders: dead letters")
    assert line.endswith("headrace topics consume orders_topic.dead --app shop.py")


def test_what_goes_on_slowly_is_said_once_a_minute():
    clock = ManualClock()
    left_out = LeftOut({}, file="shop.py", clock=clock)
    left_out.news(at(0, 1), ended=False)
    assert len(left_out.news(at(1, 1, late=100), ended=False)) == 1
    assert left_out.news(at(2, 1, late=101), ended=False) == []
    clock.advance(61)
    (line,) = left_out.news(at(3, 1, late=102), ended=False)
    assert line.startswith("102 rows late for step spent")


def test_a_run_says_what_became_dead_letters_and_what_was_late(headrace, program):
    file = program()
    assert headrace("run", file, "--local", "--until-caught-up").code == 0
    with hr.Log("shop/log") as log:
        for rows in (
            [{"user": "ann", "price": 1, "at": "2026-01-31 10:00"}, {"user": None, "price": 1, "at": None}],
            [{"user": "ann", "price": 1, "at": "2026-01-31 12:30"}],
        ):
            log.topic("orders").append(rows)
            headrace("run", file, "--local", "--until-caught-up")
        log.topic("orders").append([{"user": "ann", "price": 1, "at": "2026-01-31 10:00"}, {"user": "x", "price": 1}])
    result = headrace("run", file, "--local", "--until-caught-up")
    assert (
        "1 record of orders: dead letters, with the reason: headrace topics consume orders.dead --app shop.py"
        in result.err
    )
    assert "1 row late for step spent: in no result of it; its .late has them" in result.err
    assert headrace("topics", "consume", "orders.dead", "--app", file, "--limit", "1").code == 0


def test_status_says_that_an_app_is_starting(headrace, program):
    """Its storage is locked from the beginning; Spark takes its time."""
    from headrace.cli.programs import load_app

    file = program()
    state = hold(load_app(file), "spark")
    try:
        assert headrace("status", file).out.startswith("app shop is starting (spark); it has not run an epoch yet")
        now = json.loads(headrace("status", file, "--json").out)
        assert (now["state"], now["running"], now["restarts"]) == ("starting", True, 0)
    finally:
        state.storage.release()
    assert headrace("status", file).out.startswith("app shop does not run: its process was killed")


def test_status_says_why_an_app_starts_again(capsys):
    now = {**at(1, 10), "app": "shop", "running": True, "at": None, "sinks": {}, "sources": {}, "steps": {}, "dead": {}}
    say_status(now | {"state": "retrying", "restarts": 2, "last_error": "[DISK_FULL] a disk is full", "next_try": None})
    out = capsys.readouterr().out
    assert "app shop failed, and starts again at" in out
    assert "started again 2 times after failures that may pass\nlast error: [DISK_FULL] a disk is full" in out


def test_the_help_of_status_explains_its_columns(headrace):
    out = headrace("status", "--help").out
    assert all(f"\n  {word} " in out for word in ("late", "partly late", "too old", "carrier", "lost", "dead letters"))


def test_a_declared_view_has_no_rows_before_the_first_epoch(tmp_path):
    app = hr.App("views", storage=tmp_path)
    app.stream("t", "k string, v int").group_by("k").agg(n="count(*)").to_view("counts")
    assert app.view("counts").to_pylist() == []
    assert app.view("counts").schema.names == ["k", "n"]
    with pytest.raises(UnknownView):
        app.view("other")
