"""Top in windows: the first rows of each window of a group, corrected while it is open, dropped when it closes."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples, matrix
from headrace.base.errors import InvalidPlan
from headrace.testing import Driver

SCHEMA = "k string, g int, v int, at timestamp"
START = datetime(2026, 3, 28, tzinfo=UTC)


def at(minute):
    return START + timedelta(minutes=minute)


def row(k, v, minute, g=1):
    return {"k": k, "g": g, "v": v, "at": at(minute)}


class Deltas:
    """A sink that sums deltas and keeps the last one; none may withdraw what is not there."""

    def __init__(self):
        self.sum = Counter()
        self.last = Counter()

    def write(self, epoch, rows):
        """Add a delta."""
        self.last = Counter()
        for each in rows.to_pylist():
            weight, time = each.pop("_weight"), each.pop("_time")
            assert time == (each["window_end"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) - 1
            self.last[told(each)] += abs(weight)
            self.sum[told(each)] += weight
        assert min(self.sum.values(), default=0) >= 0, epoch
        self.sum = +self.sum


def told(each):
    return tuple(value.timestamp() if isinstance(value, datetime) else value for value in each.values())


def ranking(window, emit="changes", *, keys=("g",), n=2, rank="place", by="v desc, k asc", **options):
    app = hr.App("window_top", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at", **options)
    best = rows.group_by(*keys).window(window, emit=emit).top(n, by, rank).named("best")
    best.to_view("best")
    sink = Deltas()
    best.to(sink)
    best.late.to_topic("late")
    return app, sink


def places(driver):
    return [(each["g"], each["window_start"], each["place"], each["k"]) for each in driver.view("best")]


@pytest.mark.on_spark
def test_the_first_of_each_window_come_out_and_are_corrected_until_it_closes(drive):
    app, _ = ranking(hr.tumbling("10 minutes", grace="2 minutes"))
    driver = drive(app, shards=2)
    driver.send("t", row("a", 5, 1), row("b", 3, 2), row("c", 4, 3), row("d", 1, 11), row("e", 7, 1, g=2))
    driver.step()
    assert places(driver) == [
        (1, at(0), 1, "a"),
        (1, at(0), 2, "c"),
        (1, at(10), 1, "d"),
        (2, at(0), 1, "e"),
    ]
    driver.send("t", row("f", 9, 9), row("g", 0, 12))  # the watermark comes to the end and the grace
    driver.step()
    assert places(driver)[:2] == [(1, at(0), 1, "f"), (1, at(0), 2, "a")]
    late = row("h", 99, 9)
    driver.send("t", late)
    driver.step()
    assert places(driver)[:2] == [(1, at(0), 1, "f"), (1, at(0), 2, "a")]
    assert driver.late("best") == [late]
    assert driver.read("late") == [late]
    totals = driver.counts("best")
    assert (totals["rows_in"], totals["late"], totals["state_rows"]) == (8, 1, 2), "the first windows are forgotten"


def test_final_gives_the_places_of_a_window_once(drive):
    app, _ = ranking(hr.tumbling("10 minutes", grace="2 minutes"), emit="final")
    driver = drive(app, shards=2)
    driver.send("t", row("a", 5, 1), row("b", 3, 2), row("c", 4, 3), row("e", 7, 1, g=2), row("x", 1, 11))
    driver.step()
    driver.send("t", row("f", 9, 9), row("y", 2, 12))
    driver.step()
    assert places(driver) == []
    driver.step()
    assert places(driver) == [(1, at(0), 1, "f"), (1, at(0), 2, "a"), (2, at(0), 1, "e")]
    driver.finish()
    assert places(driver)[2:4] == [(1, at(10), 1, "y"), (1, at(10), 2, "x")]
    assert driver.counts("best")["state_rows"] == 0


def test_a_row_is_ranked_in_the_windows_of_its_own_that_are_open():
    app, _ = ranking(hr.hopping("10 minutes", "5 minutes", grace="0 s"), keys=(), n=1)
    with Driver(app, shards=2) as driver:
        driver.send("t", row("a", 1, 7), row("b", 0, 10))
        driver.step()
        driver.send("t", row("c", 9, 8))  # [0, 10) is closed, [5, 15) is not
        driver.step()
        best = [(each["window_start"], each["k"]) for each in driver.view("best")]
        assert best == [(at(0), "a"), (at(5), "c"), (at(10), "b")]
        assert driver.counts("best")["partly_late"] == 1
        assert driver.late("best") == []


def test_a_function_of_the_users_may_order_and_late_rows_come_as_they_were():
    app = hr.App("scored")
    app.function("score", pc.negate, returns="int")
    best = app.stream("t", SCHEMA, event_time="at").group_by().window(hr.tumbling("1 minute", grace="0 s"))
    best.top(1, "score(v)", "place").named("best").to_view("best")
    with Driver(app) as driver:
        driver.send("t", row("a", 5, 0), row("b", 3, 0), row("c", 4, 3))
        driver.step()
        driver.send("t", row("z", 0, 0))
        driver.step()
        assert [each["k"] for each in driver.view("best")] == ["b", "c"]
        assert driver.late("best") == [row("z", 0, 0)]


def test_the_key_is_group_window_and_place_or_the_key_above_and_the_window():
    window = hr.tumbling("10 minutes", grace="0 s")
    rows = hr.App("keys").stream("t", SCHEMA, event_time="at")
    assert rows.group_by("g").window(window).top(1, "v", "r").key == ("g", "window_start", "window_end", "r")
    assert rows.group_by("g").window(window).top(1, "v").key is None
    best = rows.latest("k").group_by("g").window(window).top(1, "v")
    assert best.key == ("k", "window_start", "window_end")
    assert best.schema.names == ["k", "g", "v", "at", "window_start", "window_end"]


def test_windows_whose_bounds_follow_from_the_rows_are_refused():
    rows = hr.App("sessions").stream("t", SCHEMA, event_time="at").group_by("g")
    with pytest.raises(InvalidPlan, match="cannot be ranked in such windows"):
        rows.window(hr.session("1 minute", grace="0 s")).top(1, "v")


def test_the_windows_own_names_are_taken():
    rows = hr.App("names").stream("t", "v int, window_end timestamp, at timestamp", event_time="at").group_by()
    with pytest.raises(InvalidPlan, match='the column "window_end" twice'):
        rows.window(hr.tumbling("1 minute", grace="0 s")).top(1, "v")


def test_what_is_kept_of_a_window_is_no_more_than_its_first_rows():
    app, _ = ranking(hr.hopping("10 minutes", "5 minutes", grace="0 s"))
    with Driver(app, shards=2) as driver:
        for start in range(0, 300, 50):
            driver.send("t", *(row(f"{n}", n % 31, n % 5, g=n % 5) for n in range(start, start + 50)))
            driver.step()
        assert driver.counts("best")["state_rows"] == 20, "two of each of two windows of five groups"


# ---- after every epoch, what the batch query gives ----


def of_size(size, every, *, cumulating=False):
    """Return the windows of a row, in minutes."""

    def windows(minute):
        if cumulating:
            start = minute // size * size
            return [(start, end) for end in range(start + every, start + size + 1, every) if minute < end]
        starts = range((minute - size) // every * every, minute + 1, every)
        return [(start, start + size) for start in starts if start <= minute < start + size]

    return windows


def paris_day(minute):
    """Return the day of Paris, on the 29th of which clocks were set forward; in minutes from the 28th, UTC."""
    ends = [-60, 1380, 2760, 4200, 5640, 7080]
    return [(start, end) for start, end in pairwise(ends) if start <= minute < end]


GRACE = 30
WINDOWS = {
    "tumbling": (hr.tumbling("60 minutes", grace="30 minutes"), of_size(60, 60)),
    "hopping": (hr.hopping("60 minutes", "20 minutes", grace="30 minutes"), of_size(60, 20)),
    "cumulating": (hr.cumulating("60 minutes", "20 minutes", grace="30 minutes"), of_size(60, 20, cumulating=True)),
    "calendar": (hr.tumbling("1 day", grace="30 minutes", timezone="Europe/Paris"), paris_day),
}
events = st.builds(
    row,
    st.sampled_from(["a", "b", "é", None]),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.integers(0, 40).map(lambda step: step * 7),
    g=st.one_of(st.none(), st.integers(0, 1)),
)


def first(entered, n, rank):
    """Return the places of rows by group and window, as the deltas tell them."""
    made = Counter()
    for (_, start, end), rows in entered.items():
        ordered = sorted(rows, key=lambda r: [_down(r["v"]), _up(r["k"]), *map(_up, r.values())])
        for place, each in enumerate(ordered[:n]):
            ranked = {
                **each,
                "window_start": at(start),
                "window_end": at(end),
                **({"place": place + 1} if rank else {}),
            }
            made[told(ranked)] += 1
    return made


def _up(value):
    return (value is not None, value.timestamp() if isinstance(value, datetime) else value or type(value)())


def _down(value):
    return (value is None, -(value or 0))


@pytest.mark.parametrize(("name", "emit"), matrix(WINDOWS, ["changes", "final"], depth=1))
@settings(max_examples=examples(2))
@given(
    epochs=st.lists(st.lists(events, max_size=9), min_size=1, max_size=5),
    rank=st.sampled_from(["place", None]),
    restart=st.integers(0, 5),
)
def test_after_every_epoch_the_deltas_sum_to_the_batch_query_and_hold_nothing_more(name, emit, epochs, rank, restart):
    """Late rows, rows late for some of their windows, ties, duplicates, nulls, empty epochs, rebuilt caches."""
    window, windows = WINDOWS[name]
    scale = 24 if name == "calendar" else 1
    epochs = [[{**each, "at": START + (each["at"] - START) * scale} for each in rows] for rows in epochs]
    app, sink = ranking(window, emit, rank=rank)
    entered, late, watermark, before = defaultdict(list), [], None, Counter()

    def closed(end):
        return watermark is not None and end + GRACE <= watermark

    with Driver(app, shards=2) as driver:
        for number, rows in enumerate(epochs):
            if number == restart:
                driver.restart()
            sink.last = Counter()
            driver.send("t", *rows)
            driver.step()
            minutes = [int((each["at"] - START).total_seconds() // 60) for each in rows]
            for each, minute in zip(rows, minutes, strict=True):
                mine = windows(minute)
                for start, end in mine:
                    if not closed(end):
                        entered[each["g"], start, end].append(each)
                if mine and all(closed(end) for _, end in mine):
                    late.append(each)
            shown = {key: rows for key, rows in entered.items() if emit == "changes" or closed(key[2])}
            now = first(shown, 2, rank)
            assert sink.sum == now, number
            assert sink.last == (now - before) + (before - now), number
            assert driver.late("best") == late
            before, watermark = now, max([*minutes, *([] if watermark is None else [watermark])], default=None)
        driver.finish()
        assert sink.sum == first(entered, 2, rank)
        assert driver.counts("best")["state_rows"] == 0


@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(2))
@given(epochs=st.lists(st.lists(events, max_size=9), min_size=1, max_size=5))
def test_rows_that_are_withdrawn_leave_the_places_of_their_window(emit, epochs):
    """Over counts of ten minutes, which are corrected and withdrawn at the times of their windows."""
    app, sink = hr.App("withdrawn", shards=2), Deltas()
    counts = (
        app.stream("t", SCHEMA, event_time="at")
        .group_by("k", "g")
        .window(hr.tumbling("10 minutes", grace="9 days"))
        .agg(n="count(*)", v="sum(v)")
        .select("k", "g", "n", "v", began="window_start")
    )
    best = counts.group_by("g").window(hr.hopping("60 minutes", "30 minutes", grace="0 s"), emit=emit)
    best.top(2, "n desc, v desc, k asc", "place").named("best").to(sink)
    counted = defaultdict(list)
    with Driver(app, shards=2) as driver:
        for rows in epochs:
            for each in rows:
                minute = int((each["at"] - START).total_seconds() // 60)
                counted[each["k"], each["g"], minute // 10 * 10].append(each["v"])
            driver.send("t", *rows)
            driver.step()
            if emit == "changes":
                assert sink.sum == _counted(counted)
        driver.finish()
        assert sink.sum == _counted(counted)


def _counted(counted):
    groups = defaultdict(list)
    for (k, g, began), values in counted.items():
        known = [value for value in values if value is not None]
        each = {"k": k, "g": g, "n": len(values), "v": sum(known) if known else None, "began": at(began)}
        for start, end in of_size(60, 30)(began + 9):
            groups[g, start, end].append(each)
    made = Counter()
    for (_, start, end), rows in groups.items():
        ordered = sorted(rows, key=lambda r: [-r["n"], _down(r["v"]), _up(r["k"]), _up(r["g"]), r["began"]])
        for place, each in enumerate(ordered[:2]):
            made[told({**each, "window_start": at(start), "window_end": at(end), "place": place + 1})] += 1
    return made


@pytest.mark.spark
def test_after_every_epoch_spark_gives_the_same(spark):
    """`row_number() over (partition by g, window …) <= n` over all that was sent."""
    app, sink = ranking(hr.hopping("60 minutes", "20 minutes", grace="9 days"), by="v, k asc", n=3)
    kinds = [("k", pa.string()), ("g", pa.int32()), ("v", pa.int32()), ("at", pa.timestamp("us", tz="UTC"))]
    sent = []
    with Driver(app, shards=2) as driver:
        for epoch in range(3):
            rows = [row("aßé"[n % 3], (n * n) % 11 - 4, (n * 37 + epoch) % 200, g=n % 3) for n in range(epoch, 40)]
            driver.send("t", *rows)
            driver.step()
            sent += rows
            spark.createDataFrame(pa.Table.from_pylist(sent, schema=pa.schema(kinds))).createOrReplaceTempView("t")
            order = "v DESC NULLS LAST, k ASC, k ASC, g ASC, v ASC, at ASC"
            windowed = "SELECT *, window(at, '60 minutes', '20 minutes') w FROM t"
            place = f"row_number() OVER (PARTITION BY g, w ORDER BY {order}) AS place"
            query = (
                f"SELECT k, g, v, at, w.start AS window_start, w.end AS window_end, place FROM (SELECT *, {place} FROM "
            )
            theirs = spark.sql(f"{query} ({windowed})) WHERE place <= 3").toArrow().to_pylist()
            assert sink.sum == Counter(map(told, theirs))
