"""Event times that are computed: an expression over the columns of a record says when it happened."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import headrace as hr
from headrace.base.errors import PlanError, UnreadableRecord
from headrace.testing import Driver


def at(second):
    return datetime.fromtimestamp(second, tz=UTC)


def counting(expression="timestamp_seconds(ts)", kind="bigint", **options):
    app = hr.App("times", shards=2)
    rows = app.stream("t", f"ts {kind}, v int", event_time=expression, out_of_order="2 s", **options)
    rows.to_topic("out")
    rows.group_by().window(hr.tumbling("10 s", grace="0 s")).agg(n="count(*)").named("counts").to_view("counts")
    return app


@pytest.mark.on_spark
def test_windows_and_watermarks_go_by_the_computed_time(drive):
    driver = drive(counting())
    driver.send("t", {"ts": 1, "v": 1}, {"ts": 15, "v": 2})
    driver.run()
    assert driver.watermark("t") == at(13)
    driver.send("t", {"ts": 3, "v": 3}, {"ts": 14, "v": 4})
    driver.run()
    assert [(row["window_start"], row["n"]) for row in driver.view("counts")] == [(at(0), 1), (at(10), 2)]
    assert driver.late("counts") == [{"ts": 3, "v": 3}]
    assert "event time timestamp_seconds(ts)" in str(counting().explain())


def test_a_record_without_a_computed_time_is_a_dead_letter_with_the_reason():
    with Driver(counting("cast(ts as timestamp)", "string")) as driver:
        texts = ["2026-01-01 10:00:00", "x", None, "2026-01-01 10:00:01", "y"]
        driver.send("t", *({"ts": text, "v": number} for number, text in enumerate(texts)))
        driver.step()
        assert [row["v"] for row in driver.read("out")] == [0, 3]
        reasons = {row["offset"]: row["reason"] for row in driver.read("t.dead")}
        assert reasons[2] == 'the event time "cast(ts as timestamp)" is null'
        assert reasons[1].startswith('the event time "cast(ts as timestamp)" cannot be computed: ')
        assert sorted(reasons) == [1, 2, 4]
        assert driver.counts("t")["dead"] == 3


def test_a_record_without_a_computed_time_stops_the_app_that_says_so():
    with Driver(counting(on_error="fail")) as driver:
        driver.send("t", {"ts": None, "v": 1})
        with pytest.raises(UnreadableRecord, match="is null"):
            driver.step()


def test_a_table_has_versions_of_computed_times_and_deletes_without_one_keep_that_of_the_log():
    app = hr.App("versions", shards=2)
    asks = app.stream("asks", "k int, ms bigint", event_time="timestamp_millis(ms)").with_columns(
        at="timestamp_millis(ms)"
    )
    rates = app.table("rates", "k int, rate int, ms bigint", key="k", event_time="timestamp_millis(ms)")
    asks.join(rates, on="k", as_of="at", grace="0 s", how="left").to_topic("out")
    rates.to_view("rates")
    with Driver(app) as driver:
        driver.send("rates", {"k": 1, "rate": 7, "ms": 5000}, {"k": 1, "rate": 5, "ms": 1000})
        driver.send("asks", *({"k": 1, "ms": ms} for ms in (500, 1000, 4999, 5000)))
        driver.finish()
        assert [row["rate"] for row in driver.read("out")] == [None, 5, 5, 7]
        driver.delete("rates", k=1)
        driver.step()
        assert driver.view("rates") == []


REFUSED = {
    "a column of another type": ("ts", "timestamp_seconds"),
    "an expression of another type": ("ts + 1", "timestamp_seconds"),
    "a function that is not known": ("timestamp_secs(ts)", "there is no function"),
    "a column that is not there": ("timestamp_seconds(tz)", 'has no column "tz"'),
    "the time of computing": ("current_timestamp()", "the time of the epoch is not deterministic"),
    "no expression": ("timestamp_seconds(", "cannot read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_computes_no_time_is_refused_where_it_is_declared(case):
    expression, says = REFUSED[case]
    with pytest.raises(PlanError) as refused:
        counting(expression)
    assert says in str(refused.value)


def test_a_computed_time_is_not_corrected_by_the_time_of_sending():
    with pytest.raises(PlanError, match="an expression is not corrected"):
        hr.App("a").stream("t", "ts bigint, sent timestamp", event_time="timestamp_seconds(ts)", sent_time="sent")
