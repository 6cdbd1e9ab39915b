"""Devices with clocks of their own: event times corrected by when a record was sent, and when it came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.errors import HeadraceError, TopicDiffers
from headrace.testing import Driver

SCHEMA = "device string, at timestamp, sent timestamp"
NOW = datetime(2025, 1, 1, tzinfo=UTC)  # where the driver's clock begins


def at(minute):
    return NOW + timedelta(minutes=minute)


def reading(device, happened, sent, *, ahead=0):
    """Return what a device whose clock is ahead by so many minutes says."""
    return {"device": device, "at": at(happened + ahead), "sent": None if sent is None else at(sent + ahead)}


def rounded(time):
    """Return a time to the second: on a clock that stands each append is a microsecond after the one before it."""
    return time.replace(microsecond=0)


def counting(**options):
    app = hr.App("devices")
    rows = app.stream("t", SCHEMA, event_time="at", sent_time="sent", **options)
    rows.to_topic("rows")
    counts = rows.group_by().window(hr.tumbling("10 minutes", grace="0 s")).agg(n="count(*)").named("counts")
    counts.to_view("counts")
    counts.late.to_topic("late")
    return app


def counts(driver):
    return [(row["window_start"], row["n"]) for row in driver.view("counts")]


def test_a_clock_that_is_wrong_is_corrected_and_what_it_said_is_kept(drive):
    """One clock an hour ahead, one a day behind; both devices sent at minute 0 what happened before it."""
    driver = drive(counting(out_of_order="1 hour"))
    driver.send(
        "t",
        reading("ahead", -5, 0, ahead=60),
        reading("behind", -15, 0, ahead=-1440),
        reading("right", -1, 0),
        reading("silent", -3, None),
    )
    driver.step()
    assert [(row["device"], rounded(row["at"]), row["at_uncorrected"], row["sent"]) for row in driver.read("rows")] == [
        ("ahead", at(-5), at(55), at(60)),
        ("behind", at(-15), at(-1455), at(-1440)),
        ("right", at(-1), at(-1), at(0)),
        ("silent", at(-3), at(-3), None),
    ]
    assert counts(driver) == [(at(-20), 1), (at(-10), 3)]


@pytest.mark.on_spark
def test_the_watermark_is_of_corrected_times(drive):
    """The log's time index knows what the device said; the watermark must not."""
    driver = drive(counting())
    driver.send("t", reading("ahead", 0, 0, ahead=600))
    driver.step()
    assert driver.watermark("counts") - at(0) < timedelta(milliseconds=1), "appends of a clock that stands are apart"
    driver.advance(600)
    driver.send("t", reading("ahead", 9, 10, ahead=600), reading("behind", 10, 10, ahead=-9999))
    driver.step()
    assert driver.watermark("counts") - at(10) < timedelta(milliseconds=1)
    driver.advance(60)
    late = reading("behind", 8, 11, ahead=-9999)
    driver.send("t", late)
    driver.step()
    assert counts(driver) == [(at(0), 2), (at(10), 1)]
    assert driver.late("counts") == [{**late, "at": at(8), "at_uncorrected": late["at"]}]


def test_the_watermark_of_another_column_than_the_topics_own_is_of_that_column(drive):
    """So is that of a source whose event time the log has not indexed: the tasks that read the rows say it."""
    app = hr.App("another", shards=2)
    rows = app.stream("t", "at timestamp, other timestamp", event_time="other", partitions=2)
    rows.group_by().window(hr.tumbling("1 minute", grace="0 s")).agg(n="count(*)").named("counts").to_view("counts")
    driver = drive(app, shards=2)
    log = driver.log
    log.delete_topic("t")
    log.create_topic("t", "at timestamp, other timestamp", partitions=2, event_time="at")
    driver.send("t", {"at": at(500), "other": at(3)}, {"at": at(700), "other": at(2)}, partition=0)
    driver.send("t", {"at": at(900), "other": at(1)}, {"at": at(5), "other": None}, partition=1)
    driver.step()
    assert driver.watermark("t") == at(1)
    assert len(driver.read("t.dead")) == 1


def test_a_record_without_an_event_time_is_a_dead_letter_whatever_was_sent():
    with Driver(counting()) as driver:
        driver.send("t", {"device": "a", "at": None, "sent": at(0)}, reading("b", 0, 0))
        driver.step()
        assert [row["reason"] for row in driver.read("t.dead")] == ['the event time "at" is null']
        assert rounded(driver.watermark("counts")) == at(0)


def test_the_event_time_may_be_the_time_of_sending_too():
    """A device that sends at once: what it did happened when the log got it, by the log's clock."""
    app = hr.App("devices")
    app.stream("t", SCHEMA, event_time="sent", sent_time="sent").to_topic("rows")
    with Driver(app) as driver:
        driver.send("t", reading("ahead", 0, 0, ahead=60), reading("silent", 0, None))
        driver.step()
        rows = [(row["device"], rounded(row["sent"]), row["sent_uncorrected"]) for row in driver.read("rows")]
        assert rows == [("ahead", at(0), at(60))]
        assert [row["reason"] for row in driver.read("t.dead")] == ['the event time "sent" is null']


def test_a_window_over_a_table_goes_by_corrected_times_too():
    """A row that is replaced leaves the window that it was in, by the clock of the log."""
    app = hr.App("devices")
    rows = app.stream("t", SCHEMA, event_time="at", sent_time="sent", out_of_order="1 hour").latest("device")
    rows.group_by().window(hr.tumbling("10 minutes", grace="1 hour")).agg(n="count(*)").named("counts").to_view(
        "counts"
    )
    with Driver(app) as driver:
        driver.send("t", reading("a", -5, 0, ahead=100), reading("b", -5, 0, ahead=-100))
        driver.step()
        assert counts(driver) == [(at(-10), 2)]
        driver.advance(600)
        driver.send("t", reading("a", 5, 10, ahead=100))
        driver.step()
        assert counts(driver) == [(at(-10), 1), (at(0), 1)]


@settings(max_examples=examples(3))
@given(
    epochs=st.lists(
        st.lists(st.tuples(st.integers(0, 200), st.none() | st.integers(0, 50), st.integers(-3000, 3000)), max_size=5),
        min_size=1,
        max_size=5,
    ),
    restart=st.booleans(),
)
def test_corrected_times_do_not_depend_on_the_devices_clock(epochs, restart):
    """What is sent at once comes with the same times and the same watermark, whatever the clocks of the devices say."""

    def run(wrong):
        with Driver(counting(out_of_order="30 minutes")) as driver:
            for rows in epochs:
                driver.advance(3600)
                now = (driver.clock.now() - int(NOW.timestamp()) * 1_000_000) // 60_000_000
                said = [reading("d", now - ago, None if way is None else now, ahead=(way is not None) * wrong * by)
                        for ago, way, by in rows]  # fmt: skip
                driver.send("t", *said)
                driver.step()
                if restart:
                    driver.restart()
            return counts(driver), driver.watermark("counts"), [row["at"] for row in driver.late("counts")]

    assert run(0) == run(1)


def stream(**options):
    return hr.App("refused").stream("t", "at timestamp, sent timestamp, n int, local timestamp_ntz", **options)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: stream(sent_time="sent"), "has no event time to correct"),
        (lambda: stream(event_time="at", sent_time="snt"), 'Did you mean "sent"'),
        (lambda: stream(event_time="at", sent_time="n"), "the sent time"),
        (lambda: stream(event_time="at", sent_time="local"), "timestamp"),
        (lambda: stream(event_time="local", sent_time="sent"), "an event time that is corrected"),
        (
            lambda: hr.App("x").stream(
                "t", "at timestamp, sent timestamp, at_uncorrected int", event_time="at", sent_time="sent"
            ),
            '"at_uncorrected" twice',
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_said(ask, what):
    with pytest.raises(HeadraceError, match=what):
        ask()


def test_a_compacted_topic_does_not_know_when_its_records_came(tmp_path):
    log = hr.Log(tmp_path / "log")
    log.create_topic("t", SCHEMA, key="device", event_time="at", cleanup="compact")
    app = counting()
    with pytest.raises(TopicDiffers, match="is compacted"):
        Driver(app, storage=tmp_path)
