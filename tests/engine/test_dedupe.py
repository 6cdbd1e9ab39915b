"""Dedupe: the first row of a key passes, others do not while the key is kept, and what is too late to say is late."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.errors import InvalidPlan, InvalidTime, PlanChanged, UnknownColumn, WrongColumnType
from headrace.testing import POINTS, Driver

SCHEMA = "k string, v int, at timestamp"


def at(seconds):
    return datetime.fromtimestamp(seconds, tz=UTC)


def row(k, v, second):
    return {"k": k, "v": v, "at": second * 1000}


def deduped(within="10 s", *keys, schema=SCHEMA, **options):
    """An app that lets the first row of each key pass to `out`; its step is `once`."""
    app = hr.App("dedupe", shards=2)
    stream = app.stream("t", schema, event_time="at", **options)
    once = stream.dedupe(*(keys or ("k",)), within=within).named("once")
    once.to_topic("out")
    return app


def short(rows):
    return sorted((each["k"] or "-", each["v"], round(each["at"].timestamp())) for each in rows)


@pytest.mark.on_spark
def test_of_one_epoch_the_first_in_event_time_passes(drive):
    """However it was read; and across epochs the one that came first, though its time is later."""
    driver = drive(deduped(out_of_order="1 minute"))
    driver.send("t", row("a", 1, 5), row("b", 2, 3), row("a", 3, 4))
    driver.step()
    assert short(driver.read("out")) == [("a", 3, 4), ("b", 2, 3)]
    driver.send("t", row("a", 4, 1), row("c", 5, 2))
    driver.step()
    assert short(driver.read("out")) == [("c", 5, 2)]


def test_a_key_comes_again_when_the_watermark_has_passed_it():
    """At first + within it is still kept, past that it is not."""
    with Driver(deduped()) as driver:
        driver.send("t", row("a", 1, 0), row("x", 0, 10))
        driver.run()  # the watermark is at 10: a is kept until it is past 0 + 10
        driver.send("t", row("a", 2, 10), row("y", 0, 11))
        driver.run()
        assert short(driver.read("out")) == [("a", 1, 0), ("x", 0, 10), ("y", 0, 11)]
        driver.send("t", row("a", 3, 11))
        driver.run()
        assert short(driver.read("out")) == [("a", 3, 11)]


def test_a_row_whose_key_may_be_forgotten_is_late_and_one_behind_the_watermark_is_not():
    with Driver(deduped()) as driver:
        driver.send("t", row("x", 0, 30))
        driver.run()
        driver.send("t", row("a", 1, 19), row("b", 2, 20))
        driver.run()
        assert short(driver.read("out")) == [("b", 2, 20), ("x", 0, 30)]
        assert short(driver.late("once")) == [("a", 1, 19)]
        assert driver.counts("once")["late"] == 1


def test_late_rows_can_be_sent_on():
    app = hr.App("lates")
    once = app.stream("t", SCHEMA, event_time="at").dedupe("k", within="10 s")
    once.to_topic("out")
    once.late.where("v > 0").to_topic("late")
    with Driver(app) as driver:
        driver.send("t", row("x", 0, 30))
        driver.run()
        driver.send("t", row("a", 1, 19), row("a", 0, 19))
        driver.run()
        assert short(driver.read("late")) == [("a", 1, 19)]


def test_nulls_are_equal_keys():
    with Driver(deduped("10 s", "k", "v", out_of_order="1 minute")) as driver:
        driver.send("t", row(None, None, 3), row(None, None, 1), row(None, 1, 2), row("a", None, 2))
        driver.step()
        driver.send("t", row(None, None, 0), row(None, 1, 0), row("a", None, 0))
        driver.step()
        made = {(each["k"], each["v"], each["at"]) for each in driver.read("out")}
        assert made == {(None, None, at(1)), (None, 1, at(2)), ("a", None, at(2))}


def test_keys_of_any_type_but_a_map():
    """Structs, arrays, decimals, instants; columns called as the kernel calls its own; maps beside the key."""
    schema = "s struct<a:int,b:array<string>>, c0 decimal(9,2), k0 timestamp, m map<string,int>, at timestamp"
    same = {"s": {"a": 1, "b": ["x", None]}, "c0": "1.50", "k0": 7, "m": {"z": 1}, "at": 1000}
    with Driver(deduped("10 s", "s", "c0", "k0", schema=schema, out_of_order="1 minute")) as driver:
        driver.send("t", same, {**same, "m": {"a": 2}}, {**same, "s": {"a": 1, "b": ["x"]}}, {**same, "s": None})
        driver.step()
        driver.restart()
        driver.send("t", same, {**same, "s": None, "at": 2000})
        driver.step()
        made = [(each["s"], each["m"]) for each in driver.read("out")]
    assert len(made) == 3
    assert ({"a": 1, "b": ["x", None]}, {"a": 2}) in made, "of equal times the least row"


def test_state_does_not_grow_when_keys_are_forgotten():
    """Hundreds of keys, and never more of them than the horizon spans; without rows time alone forgets them."""
    with Driver(deduped("10 s"), shards=2) as driver:
        kept = []
        for second in range(0, 400, 10):
            driver.send("t", *(row(f"{second}-{n}", n, second) for n in range(10)))
            driver.step()
            kept.append(driver.counts("once")["state_rows"])
        assert len(driver.read("out")) == 400
        assert max(kept) <= 40
        driver.finish()
        assert driver.counts("once")["state_rows"] == 0


def test_what_passes_flows_on_into_windows():
    """Counts over rows that were sent twice are those of the rows, and none of them is late below."""
    app = hr.App("below")
    once = app.stream("t", SCHEMA, event_time="at", out_of_order="2 s").dedupe("k", "v", within="1 minute")
    counts = once.group_by("k").window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)")
    counts.to_topic("out")
    counts.late.to_topic("late")
    with Driver(app, shards=2) as driver:
        for second in range(0, 60, 2):
            driver.send("t", row("a", second, second), row("a", second, second), row("a", second - 2, second - 2))
            driver.step()
        driver.finish()
        made = [each["n"] for each in driver.read("out") if each["window_start"] >= at(0)]
        assert made == [5] * 6
        assert driver.read("late") == []


def test_a_dedupe_by_more_columns_below_one_needs_no_exchange():
    app = hr.App("levels")
    stream = app.stream("t", SCHEMA, event_time="at").dedupe("k", within="1 s").named("one")
    stream.dedupe("k", "v", within="1 s").named("two").to_topic("out")
    levels = {step["name"]: (step["level"], step["exchange"]) for step in app.explain().data["steps"]}
    assert levels["one"] == (1, True)
    assert levels["two"] == (1, False)
    assert "first row per (k) within 1 second" in str(app.explain())


# ---- against a model ----


class Model:
    """The rule, a row at a time."""

    def __init__(self, within):
        self.within = within
        self.seen = {}

    def epoch(self, rows, watermark):
        """Return what passes, and what is late."""
        out, late = [], []
        if watermark is not None:
            self.seen = {key: first for key, first in self.seen.items() if first + self.within >= watermark}
        for each in sorted(rows, key=lambda r: (r["at"], r["k"] is not None, r["k"] or "", r["v"])):
            if watermark is not None and each["at"] + self.within < watermark:
                late.append(each)
            elif each["k"] not in self.seen:
                self.seen[each["k"]] = each["at"]
                out.append(each)
        return out, late


events = st.builds(row, st.sampled_from(["a", "b", "c", "é", None]), st.integers(0, 3), st.integers(0, 60))


@settings(max_examples=examples(7))
@given(
    epochs=st.lists(st.lists(events, max_size=6), min_size=1, max_size=10),
    within=st.sampled_from([0, 5, 20]),
    restarts=st.sets(st.integers(0, 9)),
)
def test_every_epoch_gives_what_the_rule_gives(epochs, within, restarts):
    """Disorder, duplicates, nulls, empty epochs, rebuilt caches: the same rows pass, the same are late."""
    model, late = Model(within * 1000), []
    with Driver(deduped(f"{within} s", out_of_order="7 s"), shards=2) as driver:
        for number, sent in enumerate(epochs):
            if number in restarts:
                driver.restart()
            watermark = driver.watermark("once")
            driver.send("t", *sent)
            driver.step()
            passed, behind = model.epoch(sent, None if watermark is None else round(watermark.timestamp() * 1000))
            late += behind
            assert short(driver.read("out")) == short({**each, "at": at(each["at"] / 1000)} for each in passed)
        assert short(driver.late("once")) == short({**each, "at": at(each["at"] / 1000)} for each in late)


@settings(max_examples=examples(7))
@given(sent=st.lists(events, min_size=1, max_size=25), cuts=st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_with_a_horizon_longer_than_the_input_each_key_passes_once_however_it_is_cut(sent, cuts):
    """The law: the keys that come out are those of the batch query `select distinct k`."""
    with Driver(deduped("1 hour", out_of_order="1 hour"), shards=3) as driver:
        at_ = 0
        for size in [*cuts, len(sent)]:
            driver.send("t", *sent[at_ : at_ + size])
            driver.step()
            at_ += size
        made = [each["k"] for each in driver.read("out")]
        assert len(made) == len(set(made))
        assert set(made) == {each["k"] for each in sent}


@pytest.mark.parametrize(
    "point", ["before_staging", "after_staging", "during_snapshot", "during_commit", "after_commit"]
)
def test_a_crash_lets_nothing_pass_twice(point):
    """Before the commit the epoch is computed again, after it never."""
    assert point in POINTS
    sent = [[row(f"{n % 17}", n, n // 2) for n in range(start, start + 40)] for start in range(0, 240, 40)]

    def outputs(crash_in):
        with Driver(deduped("5 s"), shards=2) as driver:
            for number, rows in enumerate(sent):
                driver.send("t", *rows)
                if number in crash_in:
                    driver.crash(at=point)
                    driver.restart()
                driver.run()
            return driver.read("out"), driver.late("once")

    undisturbed = outputs(set())
    assert len(undisturbed[0]) > 17
    assert outputs({0} if point == "during_snapshot" else {0, 3, 5}) == undisturbed


# ---- bad input ----


def stream():
    return hr.App("bad").stream("t", SCHEMA + ", m map<string,int>", event_time="at")


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda s: s.dedupe(within="1 s"), InvalidPlan, "has no key"),
        (lambda s: s.dedupe("kk", within="1 s"), UnknownColumn, 'Did you mean "k"'),
        (lambda s: s.dedupe("m", within="1 s"), WrongColumnType, "a map"),
        (lambda s: s.dedupe("k", "k", within="1 s"), InvalidPlan, "twice"),
        (lambda s: s.dedupe("k", within="soon"), InvalidTime, "horizon of dedupe"),
        (lambda s: s.dedupe("k", within="-1 s"), InvalidPlan, "negative"),
        (lambda s: s.late, InvalidPlan, "no late rows"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_said(make, error, said):
    with pytest.raises(error) as caught:
        make(stream())
    assert said in str(caught.value)


def test_another_key_or_horizon_is_another_step(tmp_path):
    with Driver(deduped("10 s"), storage=tmp_path) as driver:
        driver.send("t", row("a", 1, 1))
        driver.run()
    for app in (deduped("11 s"), deduped("10 s", "v")):
        with pytest.raises(PlanChanged), Driver(app, storage=tmp_path):
            pass


def test_of_rows_of_one_time_the_least_passes_with_nulls_first():
    """As in `top` and `over`: the whole row decides, column by column, in whatever order the rows arrive."""
    for rows in permutations([{"k": 1, "v": 2}, {"k": None, "v": 3}, {"k": 1, "v": None}]):
        app = hr.App("least")
        app.stream("x", "k int, v int, at timestamp", event_time="at").dedupe("at", within="1 s").to_view("first")
        with Driver(app) as driver:
            driver.send("x", *({**row, "at": 5} for row in rows))
            driver.run()
            assert [(row["k"], row["v"]) for row in driver.view("first")] == [(None, 3)]
