"""Joins of two streams in time: who is late, who comes out alone and when, what is kept, what a crash leaves."""

from __future__ import annotations

import disturbed
import pytest
from two_streams import HOWS, SCHEMA, at, joined, kept, row, short

import headrace as hr
from budget import fast
from headrace.base.errors import SealedColumn
from headrace.testing import Driver

# ---- who is late, and who is let go when ----


def test_late_rows_meet_nothing_go_to_late_and_come_out_alone_once():
    with Driver(joined("left", grace="5 s")) as driver:
        driver.send("l", row("A", 100))
        driver.send("r", row("a", 100))
        driver.run()
        driver.send("l", row("B", 94.999), row("C", 95))
        driver.send("r", row("b", 94.999), row("c", 95))
        driver.step()
        assert short(driver.read("out")) == ["Aa", "Ac", "B-", "Ca", "Cc"]
        assert short(driver.late("j")) == ["-b", "B-"]
        late = driver.late("j")
        assert {(row["k"], row["at"], row["at_right"]) for row in late} == {
            ("x", at(94.999), None),
            ("x", None, at(94.999)),
        }
        driver.finish()
        assert short(driver.read("out")) == []
        totals = driver.counts("j")
        assert (totals["late"], totals["rows_in"], totals["rows_out"]) == (2, 6, 5)


def test_late_rows_can_be_sent_on():
    app = hr.App("lates")
    left, right = (app.stream(name, SCHEMA, event_time="at") for name in "lr")
    both = left.join(right, on="k", within="1 s")
    both.to_topic("out")
    both.late.where("v is not null").to_topic("late")
    with Driver(app) as driver:
        driver.send("l", row("A", 100))
        driver.send("r", row("a", 100))
        driver.run()
        driver.send("l", row("B", 1))
        driver.send("r", row("b", 1))
        driver.run()
        assert short(driver.read("out")) == ["Aa"]
        assert short(driver.read("late")) == ["B-"]


def test_late_rows_are_grouped_right_though_one_side_has_not_the_key_of_the_other():
    """A late row of the right side has null in the left one's column, in whichever shard its own key put it."""
    app = hr.App("grouped", shards=5)
    left = app.stream("l", SCHEMA, event_time="at")
    right = app.stream("r", "key string, at timestamp", event_time="at")
    both = left.join(right, on={"k": "key"}, within="1 s")
    both.to_topic("out")
    both.late.group_by("k").agg(n="count(*)").to_view("late")
    with Driver(app, shards=5) as driver:
        for second in (100, 1):
            driver.send("l", *(row("A", second, f"{n}") for n in range(3)))
            driver.send("r", *({"key": f"{n}", "at": second * 1000} for n in range(20)))
            driver.run()
        assert driver.view("late") == [{"k": None, "n": 20}, *({"k": f"{n}", "n": 1} for n in range(3))]


def test_late_rows_have_the_private_columns_of_the_join():
    """Under the names that they have there: a token is not computed with, what only shares its name may be."""
    app = hr.App("private")
    left = app.stream("l", "k string, email string, at timestamp", event_time="at")
    right = app.stream("r", "k string, email string, at timestamp", event_time="at", private={"email": "k"})
    late = left.join(right, on="k", within="1 s").late
    late.where("length(email) > 3").to_topic("out")
    with pytest.raises(SealedColumn):
        late.where("length(email_right) > 3")


@pytest.mark.parametrize(("how", "of"), [("left", "l"), ("right", "r"), ("full", "l"), ("full", "r")])
def test_a_row_is_alone_when_the_watermark_is_past_its_last_partner_and_not_before(how, of):
    """To the microsecond of it: at last + grace a partner may still come, past that none can."""
    reach, grace, mine = {"l": 7, "r": 3}[of], 2, 10
    other = "r" if of == "l" else "l"
    sure = mine + reach + grace
    with Driver(joined(how, within=("-3 s", "7 s"), grace=f"{grace} s")) as driver:
        driver.send(of, row("M", mine), row("N", mine, "z"), row("w", sure, "y"))
        driver.send(other, row("w", sure, "y"))
        driver.run()
        assert driver.watermark("j") == at(sure)
        assert short(driver.read("out")) == ["ww"]
        driver.send(other, row("m", mine + reach))  # the last partner at the last moment
        driver.run()
        assert short(driver.read("out")) == (["Mm"] if of == "l" else ["mM"])
        for side in "lr":
            driver.send(side, row("-", sure + 0.001, "y"))
        driver.run()
        made = [(each["v"], each["v_right"]) for each in driver.read("out") if each["k"] == "z"]
        assert made == [("N", None) if of == "l" else (None, "N")]
        driver.finish()
        assert driver.late("j") == []
        assert "z" not in {each["k"] for each in driver.read("out")}


def test_a_row_whose_partners_all_lie_in_the_past_is_let_go_at_once():
    """It is in time, and who could meet it is here or will never be: it comes out in its own epoch, and is not kept."""
    with Driver(joined("left", within=("-20 s", "-10 s"), grace="5 s")) as driver:
        driver.send("r", row("a", 85), row("z", 100, "y"))
        driver.send("l", row("Z", 100, "y"))
        driver.run()
        before = kept(driver)
        driver.send("l", row("A", 96), row("B", 96, "q"), row("C", 106, "q"))
        driver.step()
        assert short(driver.read("out")) == ["Aa", "B-", "Z-"]
        assert kept(driver) == before + 1, "C alone was added"
        driver.finish()
        assert short(driver.read("out")) == ["C-"]


def test_an_idle_side_lets_rows_out():
    """A side that has nothing to say holds the other back until it counts as idle."""
    app = hr.App("idle")
    left = app.stream("l", SCHEMA, event_time="at")
    right = app.stream("r", SCHEMA, event_time="at", idle_after="1 minute")
    left.join(right, on="k", within="10 s", how="left").named("j").to_topic("out")
    with Driver(app) as driver:
        driver.send("l", row("A", 1), row("B", 100))
        driver.run()
        assert driver.read("out") == []
        assert driver.watermark("j") is None
        driver.advance(61)
        driver.run()
        assert short(driver.read("out")) == ["A-"]
        assert driver.watermark("j") == at(100)


def test_a_join_works_with_the_lesser_watermark_and_promises_less_its_hold():
    """Streams of different delays: nothing that came in order is late below, and windows close when they may."""
    app = hr.App("delays")
    left = app.stream("l", SCHEMA, event_time="at", out_of_order="5 s")
    right = app.stream("r", SCHEMA, event_time="at", out_of_order="30 s")
    both = left.join(right, on="k", within=("-10 s", "20 s"), how="left", grace="3 s").named("j")
    counts = both.group_by("k").window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)").named("w")
    counts.to_topic("out")
    with Driver(app) as driver:
        driver.send("l", row("A", 100))
        driver.send("r", row("a", 110))
        driver.run()
        assert driver.watermark("l") == at(95)
        assert driver.watermark("r") == at(80)
        assert driver.watermark("j") == at(80)
        assert driver.watermark("w") == at(80 - 3 - 20)
        driver.send("r", row("b", 200, "y"))
        driver.run()
        assert driver.watermark("j") == at(95), "now the left side holds it"
        assert driver.watermark("w") == at(95 - 23)
        driver.finish()
        assert driver.late("w") == []


@pytest.mark.parametrize(
    ("how", "hold"), [("inner", 3), ("left", 3 + 20), ("right", 3 + 10), ("full", 3 + 20), ("future", 3)]
)
def test_what_a_join_holds_back(how, hold):
    """`grace`; and for rows that come out alone the time until their last possible partner."""
    within = ("5 s", "20 s") if how == "future" else ("-10 s", "20 s")
    app = joined("right" if how == "future" else how, within=within, grace="3 s")
    node = next(node for node in app.plan().nodes if app.plan().name(node) == "j")
    assert node.hold == hold * 1_000_000


@pytest.mark.parametrize("how", fast("inner", "full", of=HOWS))
def test_state_is_flat_over_a_long_run(how):
    """Rows that can meet no one any more are gone, met or not; at the end nothing is kept."""
    with Driver(joined(how, within=("-3 s", "6 s"), grace="1 s", out_of_order="2 s"), shards=2) as driver:
        sizes = []
        for second in range(0, 90, 3):
            driver.send("l", *(row(f"{n}", second + n % 3, f"{n}") for n in range(8)))
            driver.send("r", *(row(f"{n}", second + n % 2, f"{n}") for n in range(4, 12)))
            driver.step()
            sizes.append(kept(driver))
        driver.read("out")
        assert max(sizes[15:]) <= max(sizes[8:15]) <= 16 * 9
        driver.finish()
        assert kept(driver) == 0


def test_each_side_is_kept_as_long_as_it_is_needed_and_no_longer():
    """In the past of the other, a row waits; in its future, none does: bounds are of each side's own."""
    with Driver(joined("inner", within=("0 s", "100 s"), grace="0 s"), shards=1) as driver:
        for second in range(0, 100, 10):
            driver.send("l", row("A", second, f"{second}"))
            driver.send("r", row("a", second, f"{second}"))
            driver.step()
        driver.run()
        assert kept(driver) == 10 + 1, "a right row asks for lefts that are not later than itself"


# ---- what happens to the process ----


def outputs(crash_at=None, crash_in=()):
    """All that anyone can see after each run, of two sides with disorder and some rows that are late."""
    sent = [("lr"[n % 2], row(f"{n}", 0 if n % 29 == 0 else n // 4 + n * 7 % 5, f"{n % 5}")) for n in range(240)]
    app = hr.App("crashing", shards=2)
    sides = [app.stream(name, SCHEMA, event_time="at", out_of_order="2 s") for name in "lr"]
    both = sides[0].join(sides[1], on="k", within=("-4 s", "2 s"), how="full", grace="3 s")
    both.to_topic("out")
    both.late.to_topic("late")
    both.to_view("pairs")
    with Driver(app, shards=2) as driver:
        made = []
        for number, start in enumerate(range(0, len(sent), 60)):
            for side, each in sent[start : start + 60]:
                driver.send(side, each)
            if number in crash_in:
                driver.crash(at=crash_at)
                driver.restart()
            driver.run()
            made.append([sorted(map(repr, driver.read(topic))) for topic in ("out", "late")])
        driver.finish()
        return [*made, sorted(map(repr, driver.read("out"))), sorted(map(repr, driver.view("pairs")))]


@pytest.fixture(scope="module")
def undisturbed():
    made = outputs()
    pairs, late = (sum(len(run[topic]) for run in made[:-2]) for topic in (0, 1))
    assert pairs > 100
    assert late > 3
    assert len(made[-1]) == pairs + len(made[-2])
    return made


@pytest.mark.parametrize("point", disturbed.points("before_staging", "after_commit"))
def test_a_crash_gives_nothing_twice_and_loses_nothing(undisturbed, point):
    epochs = {"during_snapshot": {0}, "between_topics": {2, 3}}.get(point, {0, 2, 3})
    assert outputs(point, epochs) == undisturbed
