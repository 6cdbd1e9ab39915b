"""`current_timestamp()` is the time of the epoch: one value for all of its rows, kept with its commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import headrace as hr
import headrace.testing.driver as driver_module
from headrace.base.errors import Nondeterministic, UnsupportedQuery
from headrace.engine.epoch import Settings
from headrace.engine.storage import Storage
from headrace.testing import Driver

CLICKS = "user string, at timestamp"
TICK = timedelta(seconds=7)


def application(**more):
    """Return an app that reads the time on both sides of an exchange, in a filter, and before a table."""
    app = hr.App("clock", shards=3, **more)
    clicks = app.stream("clicks", CLICKS, event_time="at", partitions=2)
    seen = clicks.with_columns(seen="now()", day="current_date")
    seen.to_topic("seen")
    first = clicks.dedupe("user", within="1 day").select("user", again="current_timestamp()")
    first.to_topic("first")
    seen.as_table().group_by("user").agg(last="max(seen)").named("lasts").to_view("lasts")
    clicks.where("at > current_timestamp() - interval '1' hour").named("fresh").to_topic("fresh")
    clicks.branch(old="at < now() - interval '1' day")["old"].to_topic("old")
    return app


def click(user, at):
    return {"user": user, "at": at}


def test_all_rows_of_an_epoch_have_one_time_on_both_sides_of_an_exchange():
    with Driver(application(), shards=3) as driver:
        driver.send("clicks", *(click(f"u{n}", "2026-01-01") for n in range(20)))
        driver.step()
        seen, first = driver.read("seen"), driver.read("first")
        (one,) = {row["seen"] for row in seen}
        assert {row["again"] for row in first} == {one}
        assert {row["day"] for row in seen} == {one.date()}
        assert len(seen) == len(first) == len(driver.read("fresh")) == 20  # of the next year
        driver.advance(TICK.total_seconds())
        driver.send("clicks", click("u1", one - timedelta(minutes=59)), click("u2", one - timedelta(days=2)))
        driver.step()
        assert {row["seen"] - one for row in driver.read("seen")} == {TICK}
        assert [row["user"] for row in driver.read("fresh")] == ["u1"]
        assert [row["user"] for row in driver.read("old")] == ["u2"]
        assert {row["user"]: row["last"] - one for row in driver.view("lasts") if row["last"] != one} == {
            "u1": TICK,
            "u2": TICK,
        }


@pytest.mark.parametrize("point", ["after_staging", "after_commit", "before_views"])
def test_outputs_agree_on_the_time_after_a_crash(point):
    with Driver(application(), shards=3) as driver:
        driver.send("clicks", click("ann", "2026-01-01"))
        driver.crash(at=point)
        driver.advance(60)
        driver.restart()
        driver.run()
        times = {row["seen"] for row in driver.read("seen")} | {row["again"] for row in driver.read("first")}
        assert times == {row["last"] for row in driver.view("lasts")}
        assert len(times) == 1


def test_a_lost_epoch_that_runs_again_has_the_time_that_it_had(tmp_path):
    with Driver(application(), storage=tmp_path, shards=3) as driver:
        driver.send("clicks", click("ann", "2026-01-01"))
        driver.step()
        before = driver.view("lasts")
        driver.advance(60)
        driver.send("clicks", click("ann", "2026-01-02"))
        driver.step()
        after = driver.view("lasts")
        assert after != before
    storage = Storage(tmp_path, "clock")
    newest = storage.last_epoch()
    (tmp_path / "epochs" / f"{newest:012d}.json").unlink()
    with Driver(application(), storage=tmp_path, shards=3) as driver:
        driver.advance(3600)
        driver.run()
        assert driver.view("lasts") == after


def test_the_time_never_goes_back_though_the_clock_does():
    with Driver(application(), shards=3) as driver:
        driver.send("clicks", click("ann", "2026-01-01"))
        driver.step()
        driver.advance(-3600)
        driver.send("clicks", click("bob", "2026-01-01"))
        driver.step()
        times = [row["seen"] for row in driver.read("seen")]
        assert times[1] >= times[0]


def test_explain_says_that_a_replay_has_another_time():
    text = str(application().explain())
    assert text.count("(the time of the epoch: another one when rows are replayed)") == 4
    steps = {step["name"]: step["detail"] for step in application().explain().data["steps"]}
    assert "the time of the epoch" not in steps["lasts"]


def test_the_time_is_refused_where_a_row_is_withdrawn_by_computing_it_again():
    app = hr.App("clock")
    users = app.table("users", "id int, at timestamp", key="id")
    clicks = app.stream("clicks", CLICKS, event_time="at")
    by_user = clicks.group_by("user")
    refused = [
        lambda: users.with_columns(seen="now()"),
        lambda: users.where("at < current_timestamp()"),
        lambda: users.group_by("id").agg(n="max(now())"),
        lambda: by_user.agg(n="max(at) < current_date"),
        lambda: by_user.window(hr.tumbling("1 minute", grace="0 seconds")).agg(n="now() > max(at)"),
        lambda: users.group_by("id").top(3, "datediff(now(), at) desc"),
        lambda: clicks.join(clicks.rename(other="at"), on="user", within="1 hour", where="other < now()"),
        lambda: app.sql("select id from users where at < current_timestamp"),
    ]
    for verb in refused:
        with pytest.raises(Nondeterministic, match="the time of the epoch"):
            verb()
    final = by_user.window(hr.tumbling("1 minute", grace="0 seconds"), emit="final").agg(last="max(at)")
    assert "closed" in final.with_columns(closed="now()").columns


def test_sql_has_the_same_time_with_and_without_brackets():
    app = hr.App("clock")
    app.stream("clicks", CLICKS, event_time="at")
    app.sql("select user, current_timestamp as a, current_timestamp() as b, `at` from clicks c").to_topic("out")
    with Driver(app) as driver:
        driver.send("clicks", click("ann", datetime(2024, 1, 1, tzinfo=UTC)))
        driver.run()
        (row,) = driver.read("out")
        assert row["a"] == row["b"] > row["at"]


def test_a_feed_has_no_epoch_so_no_time_of_one():
    from headrace.connect import files

    with pytest.raises(Nondeterministic, match="outside of epochs"):
        hr.feed(files.lines("x.txt"), "line string").with_columns(seen="now()")


def test_values_are_no_place_for_the_time():
    with pytest.raises(UnsupportedQuery, match="constants"):
        hr.App("clock").sql("values (now())")


@pytest.mark.spark
def test_on_spark_all_tasks_of_an_epoch_have_its_time(spark, monkeypatch):  # noqa: ARG001 -- the session is shared
    """Those of a large epoch, with an exchange between them, and the one of a small epoch."""
    for small in (0, 1000):
        monkeypatch.setattr(driver_module, "Settings", partial(Settings, small=small))
        with Driver(application(), shards=2, carrier="spark") as driver:
            for _ in range(2):
                driver.send("clicks", *(click(f"u{n}", "2026-01-01") for n in range(20)))
                driver.step()
            seen, first = driver.read("seen"), driver.read("first")
            assert len({row["seen"] for row in seen}) == 2
            assert {row["again"] for row in first} == {min(row["seen"] for row in seen)}
            assert len(first) == 20
