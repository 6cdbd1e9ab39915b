"""A stream meets the versions of a table as of a time: whatever comes in which order, final when it comes out."""

from __future__ import annotations

import disturbed
import pytest
from version_apps import ORDERS, RATES, at, order, priced, rate

import headrace as hr
from headrace.base.errors import InvalidPlan, PlanChanged, UnknownColumn, WrongColumnType
from headrace.testing import Driver


def app_of(how="left", grace="10 s", out_of_order="0 s", history=None, **options):
    """Orders meet the rates of their time in the step `priced`, given out to `out`; late ones go to `late`."""
    app = hr.App("rates", shards=2)
    orders = app.stream("orders", ORDERS, event_time="at", out_of_order=out_of_order)
    rates = app.table("rates", RATES, key="currency", event_time="since", out_of_order=out_of_order, history=history)
    priced = orders.join(rates, on="currency", as_of="at", grace=grace, how=how, **options).named("priced")
    priced.to_topic("out")
    priced.late.to_topic("late")
    return app


def move(driver, second):
    """Let both watermarks come to a second, by rows that meet nobody else."""
    order(driver, -1, second, "none")
    rate(driver, 0.0, second, "nothing")
    driver.run()


NOON = 12 * 3600
VECTOR = [
    lambda d: rate(d, 1.14, NOON),
    lambda d: rate(d, 1.10, NOON + 300),
    lambda d: order(d, 1, NOON),
    lambda d: order(d, 2, NOON + 360),
]


@pytest.mark.parametrize("permuted", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (1, 3, 0, 2)])
def test_the_vector_in_whatever_order_an_epoch_an_input(permuted):
    """An order at 12:00 takes the rate from 12:00, one at 12:06 that from 12:05."""
    with Driver(app_of(out_of_order="10 minutes")) as driver:
        for step in permuted:
            VECTOR[step](driver)
            driver.step()
            assert priced(driver) == []
        driver.finish()
        assert sorted(priced(driver)) == [(1, 1.14), (2, 1.10)]


@pytest.mark.on_spark("left")
@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_vector_all_in_one_epoch(drive, how):
    driver = drive(app_of(how))
    for send in VECTOR:
        send(driver)
    order(driver, 3, NOON - 1)
    driver.step()
    driver.finish()
    assert sorted(priced(driver)) == [(1, 1.14), (2, 1.10)] + ([(3, None)] if how == "left" else [])


# ---- versions ----


def test_every_record_is_a_version_also_those_that_an_epoch_folds_and_deletes():
    with Driver(app_of()) as driver:
        for second, value in enumerate([1.0, 2.0, None, 4.0, 4.0, None, None, 8.0]):
            rate(driver, value, second)
        for second in range(9):
            order(driver, second, second)
        driver.step()
        driver.finish()
        expected = [1.0, 2.0, None, 4.0, 4.0, None, None, 8.0, 8.0]
        assert priced(driver) == list(enumerate(expected))


@pytest.mark.parametrize("together", [True, False])
def test_a_version_out_of_order_is_valid_from_its_own_time_to_the_next_ones(together):
    """A record that says what is there already is a version too: before it another may come."""
    with Driver(app_of(out_of_order="1 minute")) as driver:
        for value, second in ((5.0, 5), (5.0, 15), (10.0, 20), (8.0, 8), (None, 12), (7.0, 7)):
            rate(driver, value, second)
            if not together:
                driver.step()
        for second in (4, 5, 7, 8, 11, 12, 14, 15, 20, 30):
            order(driver, second, second)
        driver.finish()
        assert priced(driver) == [
            (4, None), (5, 5.0), (7, 7.0), (8, 8.0), (11, 8.0), (12, None), (14, None), (15, 5.0), (20, 10.0),
            (30, 10.0),
        ]  # fmt: skip


@pytest.mark.parametrize("together", [True, False])
def test_of_equal_times_the_later_arrival_is_valid(together):
    with Driver(app_of(out_of_order="1 minute")) as driver:
        for value, second in ((1.0, 5), (2.0, 5), (3.0, 9), (None, 9), (4.0, 12), (None, 12), (5.0, 12)):
            rate(driver, value, second)
            if not together:
                driver.step()
        for second in (5, 9, 12):
            order(driver, second, second)
        driver.finish()
        assert priced(driver) == [(5, 2.0), (9, None), (12, 5.0)]


@pytest.mark.parametrize("together", [True, False])
def test_a_delete_without_a_time_has_that_of_the_last_version(together):
    with Driver(app_of(out_of_order="1 minute")) as driver:
        rate(driver, None, None)  # of nothing: nothing
        rate(driver, 1.0, 5)
        rate(driver, 2.0, 9)
        if not together:
            driver.step()
        rate(driver, None, None)
        if not together:
            driver.step()
        rate(driver, 3.0, 20)
        for second in (5, 8, 9, 19, 20):
            order(driver, second, second)
        driver.finish()
        assert priced(driver) == [(5, 1.0), (8, 1.0), (9, None), (19, None), (20, 3.0)]


def test_the_latest_of_a_stream_has_versions_and_so_have_selections_of_tables():
    """A row that a `where` leaves out is not there from then on; versions that `latest` never showed count."""
    app = hr.App("selected", shards=2)
    orders = app.stream("orders", ORDERS, event_time="at", out_of_order="1 minute")
    rows = app.stream("rates", RATES, event_time="since", out_of_order="1 minute")
    latest = rows.latest("currency")
    latest.to_view("latest")
    table = latest.where("rate < 5").select("currency", double_="rate * 2").where("double_ <> 4")
    orders.join(table, on="currency", as_of="at", grace="0 s", how="left").named("priced").to_topic("out")
    with Driver(app) as driver:
        for value, second in ((1.0, 10), (3.0, 30), (9.0, 20), (2.0, 25), (4.0, 40)):
            rate(driver, value, second)
            driver.step()
        for second in (9, 10, 20, 25, 30, 40):
            order(driver, second, second)
        driver.finish()
        got = [(row["id"], row["double_"]) for row in driver.read("out")]
        assert got == [(9, None), (10, 2.0), (20, None), (25, None), (30, 6.0), (40, 8.0)]


def test_several_rows_of_the_table_match_each_as_of_its_own_versions():
    app = hr.App("several", shards=2)
    orders = app.stream("orders", ORDERS, event_time="at")
    rates = app.table("rates", "currency string, bank string, rate double, since timestamp", key=("currency", "bank"),
                      event_time="since")  # fmt: skip
    for how in ("inner", "left"):
        orders.join(rates, on="currency", as_of="at", grace="0 s", how=how, where="rate > 0").named(how).to_topic(how)
    with Driver(app) as driver:
        for currency, bank, value, second in (
            ("EUR", "x", 1.0, 1),
            ("EUR", "y", 2.0, 2),
            ("EUR", "x", 3.0, 3),
            ("EUR", "y", -1.0, 4),
            ("USD", "x", 5.0, 1),
        ):
            driver.send("rates", {"currency": currency, "bank": bank, "rate": value, "since": second * 1000})
        driver.send("rates", {"currency": "EUR", "bank": "x", "since": 6000, "_deleted": True})
        for second in range(7):
            order(driver, second, second)
        order(driver, 7, 6, "USD")
        order(driver, 8, 6, None)
        driver.finish()
        found = [(1, 1.0), (2, 1.0), (2, 2.0), (3, 2.0), (3, 3.0), (4, 3.0), (5, 3.0), (7, 5.0)]
        assert sorted((row["id"], row["rate"]) for row in driver.read("inner")) == found
        left = sorted((row["id"], row["rate"]) for row in driver.read("left"))
        assert left == sorted([*found, (0, None), (6, None), (8, None)])


# ---- waiting, grace, late rows ----


def test_a_row_waits_until_both_sides_have_passed_its_time_and_the_grace():
    with Driver(app_of(grace="10 s")) as driver:
        rate(driver, 1.0, 0)
        order(driver, 1, 5)
        driver.run()
        order(driver, 2, 100)
        driver.run()
        assert priced(driver) == []  # the table has only come to 0
        assert driver.watermark("priced") == at(0)
        rate(driver, 2.0, 15)
        driver.run()
        assert priced(driver) == []  # at 5 + 10, not past it
        rate(driver, 3.0, 4)  # late, and within the grace
        driver.step()
        rate(driver, 4.0, 16)
        driver.run()
        assert priced(driver) == [(1, 3.0)]
        assert driver.watermark("priced") == at(16)


def test_an_answer_is_never_revised():
    with Driver(app_of(grace="0 s")) as driver:
        rate(driver, 1.0, 0)
        order(driver, 1, 5)
        driver.step()
        move(driver, 30)
        assert priced(driver) == [(1, 1.0)]
        rate(driver, 2.0, 4)
        driver.run()
        driver.finish()
        assert priced(driver) == []


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_row_more_than_grace_behind_the_watermark_is_late_and_left_gives_it_with_nulls(drive, how):
    driver = drive(app_of(how, grace="10 s"))
    rate(driver, 1.0, 0)
    move(driver, 100)
    order(driver, 1, 89)
    order(driver, 2, 90)
    driver.step()
    assert priced(driver) == ([(1, None)] if how == "left" else [])
    move(driver, 200)
    assert priced(driver) == [(2, 1.0)]
    assert [(row["id"], row["rate"]) for row in driver.read("late")] == [(1, None)]
    assert [(row["id"], row["rate"]) for row in driver.late("priced")] == [(1, None)]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_late_row_whose_time_is_within_the_history_is_answered(how):
    """At once, with the version of its time; what is older than grace and history is late."""
    with Driver(app_of(how, grace="10 s", history="50 s")) as driver:
        rate(driver, 1.0, 0)
        rate(driver, 2.0, 60)
        move(driver, 100)
        for number, second in enumerate((39, 40, 59, 60, 89)):
            order(driver, number, second)
        driver.step()
        old = [(0, None)] if how == "left" else []
        assert sorted(priced(driver)) == [*old, (1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]
        assert [(row["id"], row["rate"]) for row in driver.late("priced")] == [(0, None)]
        assert driver.counts("priced")["late"] == 1
        move(driver, 200)
        driver.finish()
        assert priced(driver) == []


def test_a_time_of_null_has_no_version():
    app = hr.App("nulls")
    orders = app.stream("orders", ORDERS)
    rates = app.table("rates", RATES, key="currency", event_time="since")
    for how in ("inner", "left"):
        orders.join(rates, on="currency", as_of="at", grace="1 s", how=how).named(how).to_topic(how)
    with Driver(app) as driver:
        rate(driver, 1.0, 0)
        driver.send("orders", {"id": 1, "currency": "EUR", "at": None})
        driver.step()
        assert [(row["id"], row["rate"]) for row in driver.read("left")] == [(1, None)]
        assert driver.read("inner") == []


def test_steps_below_wait_for_rows_that_ask_for_a_time_to_come():
    """The time asked for may be far behind the row's own: its event time is promised to those below all along."""
    app = hr.App("due", shards=2)
    orders = app.stream("orders", "id int, currency string, due timestamp, at timestamp", event_time="at")
    rates = app.table("rates", RATES, key="currency", event_time="since")
    made = orders.join(rates, on="currency", as_of="due", grace="0 s").named("priced")
    made.group_by("currency").window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)").named(
        "counts"
    ).to_topic("out")
    with Driver(app) as driver:
        rate(driver, 1.0, 0)
        for nr, due, second in ((1, 5, 5), (2, 60, 6), (3, 40, 40), (4, 70, 70), (5, 90, 90)):
            driver.send("orders", {"id": nr, "currency": "EUR", "due": due * 1000, "at": second * 1000})
            rate(driver, 1.0, second)
            driver.run()
            if nr == 3:
                assert driver.watermark("counts") == at(6)
        driver.finish()
        assert [(row["window_start"], row["n"]) for row in driver.read("out")] == [
            (at(0), 2), (at(40), 1), (at(70), 1), (at(90), 1)
        ]  # fmt: skip
        assert driver.late("counts") == []


# ---- history and state ----


def state_rows(driver):
    return driver.counts("priced")["state_rows"]


def valued_app(history, how="left"):
    app = hr.App("valued", shards=2)
    orders = app.stream("orders", "id int, currency string, day timestamp, at timestamp", event_time="at")
    rates = app.table("rates", RATES, key="currency", event_time="since", history=history)
    orders.join(rates, on="currency", as_of="day", grace="5 s", how=how).named("priced").to_topic("out")
    return app


@pytest.mark.parametrize("how", ["inner", "left"])
def test_old_versions_are_kept_for_their_history_and_no_longer(how):
    with Driver(valued_app("20 s", how)) as driver:

        def asks(nr, day, second):
            driver.send("orders", {"id": nr, "currency": "EUR", "day": day * 1000, "at": second * 1000})

        for second in range(0, 60, 10):
            rate(driver, float(second), second)
        asks(0, 55, 60)
        rate(driver, 60.0, 60)
        driver.run()  # the horizon is at 60 - 5 - 20
        assert driver.watermark("priced") == at(60)
        assert state_rows(driver) == 4 + 1  # the versions of 30, which 35 may ask for, 40, 50 and 60; and a row waits
        for nr, day in enumerate([5, 29, 34, 35, 39, 40, 54]):
            asks(nr + 1, day, 60)
        driver.step()
        answered = [(3, 30.0), (4, 30.0), (5, 30.0), (6, 40.0), (7, 50.0)]
        expected = answered if how == "inner" else [(1, None), (2, None), *answered]
        assert [(row["id"], row["rate"]) for row in driver.read("out")] == expected
        assert driver.counts("priced")["too_old"] == 2


def test_a_table_that_no_longer_changes_answers_for_all_times_since():
    with Driver(app_of(grace="0 s")) as driver:
        rate(driver, 1.0, 0)
        for second in (100, 200, 300):
            order(driver, second, second)
            move(driver, second + 1)
        assert priced(driver) == [(100, 1.0), (200, 1.0), (300, 1.0)]
        assert state_rows(driver) <= 3


def test_versions_and_rows_leave_the_state_with_the_watermark():
    with Driver(app_of(grace="10 s")) as driver:
        for second in range(100):
            rate(driver, float(second), second)
            order(driver, second, second)
            if second % 20 == 19:
                driver.step()
        rate(driver, None, 100)
        driver.run()
        assert state_rows(driver) <= 2 * 11 + 2
        move(driver, 200)
        assert state_rows(driver) <= 2  # of the moves themselves; the key that is gone is forgotten
        assert priced(driver) == [(second, float(second)) for second in range(100)]


def test_a_version_that_is_over_when_it_comes_answers_for_nobody():
    with Driver(valued_app("10 s")) as driver:
        for second in (0, 10, 20, 30, 100):
            rate(driver, float(second), second)
        driver.send("orders", {"id": 0, "currency": "none", "day": None, "at": 100_000})
        driver.run()  # the horizon is at 85: the version of 30 is still valid there
        rate(driver, 5.0, 5)
        driver.step()
        driver.send("orders", {"id": 1, "currency": "EUR", "day": 25_000, "at": 100_000})
        driver.send("orders", {"id": 2, "currency": "EUR", "day": 90_000, "at": 100_000})
        driver.step()
        assert [(row["id"], row["rate"]) for row in driver.read("out")] == [(0, None), (1, None), (2, 30.0)]


# ---- crashes, names ----


def crash_app():
    """What was priced, a view of it, late rows, and the orders as they came."""
    app = hr.App("crash", shards=2)
    orders = app.stream("orders", ORDERS, event_time="at")
    rates = app.table("rates", RATES, key="currency", event_time="since")
    made = orders.join(rates, on="currency", as_of="at", grace="4 s", how="left").named("priced")
    made.to_topic("out")
    orders.to_topic("copy")
    made.late.to_topic("late")
    made.group_by("currency").agg(n="count(*)", total="sum(rate)").to_view("totals")
    return app


def scenario(driver, step=disturbed.quietly):
    for number in range(6):
        first = number * 10
        for nr in range(10):
            rate(driver, None if nr == 5 else float(first + nr), first + nr - 2 * (nr % 3), "abc"[nr % 3])
            order(driver, first + nr, first + nr - nr % 2, "abcd"[nr % 4])
        if number == 3:
            order(driver, 900, 1, "a")
        step(driver, number)
    driver.finish()
    return driver.read("out"), driver.read("late"), driver.view("totals")


@pytest.fixture(scope="module")
def undisturbed():
    with Driver(crash_app(), shards=2) as driver:
        out, late, totals = made = scenario(driver)
    assert len(out) == 61  # the late one too, with nulls
    assert len(late) == 1
    assert [row["n"] for row in totals] == [19, 18, 12, 12]
    return made


@pytest.mark.parametrize("point", disturbed.points("before_staging", "during_commit"))
def test_a_crash_leaves_no_trace_in_versions(undisturbed, point):
    with Driver(crash_app(), shards=2) as driver:
        assert scenario(driver, disturbed.crashing(point, (2, 4))) == undisturbed


def test_the_state_of_versions_is_rebuilt_from_its_files(undisturbed):
    with Driver(crash_app(), shards=2) as driver:
        assert scenario(driver, disturbed.restarting) == undisturbed


def test_a_changed_version_join_is_refused_and_a_longer_history_is_not(tmp_path):
    with Driver(app_of(), storage=tmp_path) as driver:
        driver.step()
    Driver(app_of(history="1 day"), storage=tmp_path).close()
    with pytest.raises(PlanChanged, match="grace: was 10 seconds, is 5 seconds"):
        Driver(app_of(grace="5 s"), storage=tmp_path)


def test_a_new_join_with_versions_that_were_read_already_is_refused(tmp_path):
    """It would answer as if there had been none."""

    def grown(*, joined):
        app = hr.App("grown")
        orders = app.stream("orders", ORDERS, event_time="at")
        rates = app.table("rates", RATES, key="currency", event_time="since")
        orders.to_topic("copy")
        rates.to_view("rates")
        if joined:
            orders.join(rates, on="currency", as_of="at", grace="0 s").named("priced").to_topic("out")
        return app

    with Driver(grown(joined=False), storage=tmp_path) as driver:
        order(driver, 1, 1)
        driver.step()
    Driver(grown(joined=True), storage=tmp_path).close()  # no rate has been read: nothing is missed
    with Driver(grown(joined=False), storage=tmp_path / "other") as driver:
        rate(driver, 1.0, 0)
        driver.step()
    with pytest.raises(PlanChanged, match='"priced" would begin without the versions that were read from "rates"'):
        Driver(grown(joined=True), storage=tmp_path / "other")


def test_explain_says_what_is_joined():
    text = str(app_of(history="7 days").explain())
    assert "left, on currency, as of at" in text
    assert "the versions of the table that they may still ask for" in text


def test_what_has_no_versions_is_refused():
    app = hr.App("refused")
    orders = app.stream("orders", ORDERS)
    rates = app.table("rates", "currency string, bank string, rate double", key=("currency", "bank"))
    with pytest.raises(InvalidPlan, match="needs a grace"):
        orders.join(rates, on=("currency",), as_of="at")
    by_bank = app.table("by_bank", "bank string, currency string", key="bank")
    with pytest.raises(InvalidPlan, match="currency is none of them"):
        orders.join(by_bank, on="currency", as_of="at", grace="0 s")
    with pytest.raises(InvalidPlan, match="have no versions"):
        orders.join(rates.group_by("currency").agg(n="count(*)"), on="currency", as_of="at", grace="0 s")
    with pytest.raises(InvalidPlan, match="has lost its key"):
        orders.join(rates.select("currency", "rate"), on="currency", as_of="at", grace="0 s")
    with pytest.raises(UnknownColumn):
        orders.join(rates, on="currency", as_of="when", grace="0 s")
    with pytest.raises(WrongColumnType):
        orders.join(rates, on="currency", as_of="id", grace="0 s")
    with pytest.raises(InvalidPlan, match="how='right' is not possible"):
        orders.join(rates, on="currency", as_of="at", grace="0 s", how="right")
    with pytest.raises(InvalidPlan, match="below zero"):
        orders.join(rates, on="currency", as_of="at", grace="-1 s")
