"""A stream looks a table up: as of arrival, whatever the event times; what the table does triggers nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import disturbed
import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, PlanChanged, UnknownColumn, WrongColumnType
from headrace.testing import Driver

LEFT, RIGHT = "k int, l string, at timestamp", "k int, r string, since timestamp"


def at(second):
    return datetime.fromtimestamp(second, tz=UTC)


def app_of(how="left", **options):
    """A stream `l` that meets a table `r` in the step `met`, given out to `out`."""
    app = hr.App("lookup", shards=2)
    left = app.stream("l", LEFT, event_time="at", out_of_order="1 hour")
    right = app.table("r", RIGHT, key="k", event_time="since", out_of_order="1 hour")
    left.join(right.drop("since"), on="k", how=how, **options).named("met").to_topic("out")
    return app


def left(driver, text, second, key=1):
    driver.send("l", {"k": key, "l": text, "at": second * 1000})


def right(driver, text, second, key=1):
    """An upsert, or, of None, a delete."""
    if text is None:
        driver.delete("r", k=key, since=second * 1000)
    else:
        driver.send("r", {"k": key, "r": text, "since": second * 1000})


def met(driver):
    return [(row["l"], row["r"]) for row in driver.read("out")]


VECTOR = [
    (3, left, "A", [("A", None)]),
    (4, right, "a", []),
    (5, left, "B", [("B", "a")]),
    (8, right, None, []),
    (9, left, "C", [("C", None)]),
    (14, right, "d", []),
    (15, left, "D", [("D", "d")]),
]


def of(how, rows):
    return [row for row in rows if how == "left" or row[1] is not None]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_vector_one_epoch_an_input(how):
    """The vector of a stream and a table."""
    with Driver(app_of(how)) as driver:
        for second, side, text, expected in VECTOR:
            side(driver, text, second)
            driver.step()
            assert met(driver) == of(how, expected)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_vector_all_in_one_epoch(drive, how):
    driver = drive(app_of(how))
    for second, side, text, _ in VECTOR:
        side(driver, text, second)
    driver.step()
    assert met(driver) == of(how, [row for *_, expected in VECTOR for row in expected])


# ---- which change is in force ----


def test_across_epochs_arrival_decides_whatever_the_times():
    with Driver(app_of()) as driver:
        right(driver, "late", 90)
        driver.step()
        left(driver, "A", 5)
        driver.step()
        right(driver, "earlier", 2)
        driver.step()
        left(driver, "B", 6)
        driver.step()
        assert met(driver) == [("A", "late"), ("B", "earlier")]


def test_the_later_change_of_a_key_is_in_force_whatever_their_event_times():
    with Driver(app_of()) as driver:
        right(driver, "old", 1)
        driver.step()
        left(driver, "before", 12)
        right(driver, "ten", 10)
        left(driver, "between", 4)
        right(driver, "five", 5)
        left(driver, "after", 7)
        driver.step()
        assert met(driver) == [("before", "old"), ("between", "ten"), ("after", "five")]
        left(driver, "later", 6)
        driver.step()
        assert met(driver) == [("later", "five")]


def test_many_changes_of_a_key_in_one_epoch():
    """Upserts, deletes and rows that come back, each in force until the next."""
    with Driver(app_of(), shards=2) as driver:
        for second in range(60):
            if second % 2 == 0:
                right(driver, None if second % 6 == 4 else f"r{second}", second)
            left(driver, str(second), second)
        driver.step()
        expected = [(str(s), None if s // 2 * 2 % 6 == 4 else f"r{s // 2 * 2}") for s in range(60)]
        assert met(driver) == expected


def test_a_row_that_comes_and_goes_in_one_epoch_is_met_between():
    with Driver(app_of()) as driver:
        left(driver, "1", 9)
        right(driver, "a", 2)
        left(driver, "2", 9)
        left(driver, "5", 0)
        right(driver, None, 6)
        left(driver, "6", 0)
        driver.step()
        assert met(driver) == [("1", None), ("2", "a"), ("5", "a"), ("6", None)]
        left(driver, "x", 3)
        driver.step()
        assert met(driver) == [("x", None)]


def test_changes_of_the_table_trigger_nothing():
    with Driver(app_of()) as driver:
        left(driver, "A", 1)
        driver.step()
        driver.read("out")
        right(driver, "a", 2)
        right(driver, "b", 3)
        driver.run()
        driver.finish()
        assert met(driver) == []


def test_null_meets_nothing_on_either_side():
    app = hr.App("nulls", shards=2)
    stream = app.stream("l", "k int, l string")
    table = app.table("r", "id int, k int, r string", key="id").drop("id")
    stream.join(table, on="k", how="left").named("left").to_topic("left")
    stream.join(table, on="k").named("inner").to_topic("inner")
    with Driver(app) as driver:
        driver.send("r", {"id": 1, "k": None, "r": "null"}, {"id": 2, "k": 1, "r": "one"})
        driver.send("l", {"k": None, "l": "A"}, {"k": 1, "l": "B"})
        driver.step()
        driver.send("l", {"k": None, "l": "C"})
        driver.step()
        assert [(row["l"], row["r"]) for row in driver.read("left")] == [("A", None), ("B", "one"), ("C", None)]
        assert [(row["l"], row["r"]) for row in driver.read("inner")] == [("B", "one")]


# ---- what comes out ----


@pytest.mark.on_spark
def test_rows_come_out_in_the_order_of_the_stream(drive):
    """However the table is built, and however large either side is."""
    driver = drive(app_of("left"), shards=1)
    driver.send("r", *({"k": key, "r": f"r{key}", "since": 0} for key in range(5000)))
    driver.step()
    asks = [{"k": nr * 7919 % 6000, "l": str(nr), "at": (nr * 31 % 977) * 1000} for nr in range(3000)]
    driver.send("l", *asks[:2000])
    driver.send("r", *({"k": key, "r": "new", "since": 500_000} for key in range(0, 5000, 3)))
    driver.send("l", *asks[2000:])
    driver.step()
    rows = driver.read("out")
    assert [row["l"] for row in rows] == [str(nr) for nr in range(3000)]
    for nr, row in enumerate(rows):
        expected = None if row["k"] >= 5000 else "new" if row["k"] % 3 == 0 and nr >= 2000 else f"r{row['k']}"
        assert row["r"] == expected


def test_a_joined_row_keeps_its_own_time_and_the_table_holds_no_window_back():
    """A table that never changes again, or has later times, neither moves rows between windows nor keeps them open."""
    app = hr.App("times")
    stream = app.stream("l", LEFT, event_time="at")
    table = app.table("r", RIGHT, key="k", event_time="since")
    made = stream.join(table, on="k").named("met")
    made.group_by("r").window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)").to_topic("out")
    with Driver(app) as driver:
        right(driver, "a", 25)
        driver.run()
        left(driver, "A", 3)
        left(driver, "B", 31)
        left(driver, "C", 99)
        driver.run()
        assert driver.watermark("met") == at(99)
        got = [(row["window_start"], row["n"]) for row in driver.read("out")]
        assert got == [(at(0), 1), (at(30), 1)]


def test_names_and_conditions_over_both_sides():
    app = hr.App("names", shards=2)
    orders = app.stream("orders", "id int, buyer int, city string, amount int, at timestamp", event_time="at")
    users = app.table("users", "id int, city string, most int", key="id")
    made = orders.join(users, on={"buyer": "id"}, how="left", where="amount <= most and city <> city_right")
    made.named("met").to_topic("out")
    assert made.columns == ["id", "buyer", "city", "amount", "at", "id_right", "city_right", "most"]
    with Driver(app) as driver:
        driver.send("users", {"id": 7, "city": "x", "most": 10}, {"id": 8, "city": "y", "most": None})
        driver.step()
        rows = [(1, 7, "y", 5), (2, 7, "x", 5), (3, 7, "y", 50), (4, 8, "x", 1), (5, 9, "x", 1)]
        for nr, buyer, city, amount in rows:
            driver.send("orders", {"id": nr, "buyer": buyer, "city": city, "amount": amount, "at": nr})
        driver.step()
        got = {row["id"]: (row["id_right"], row["city_right"], row["most"]) for row in driver.read("out")}
        nobody = (None, None, None)
        assert got == {1: (7, "x", 10), 2: nobody, 3: nobody, 4: nobody, 5: nobody}


# ---- any table, any columns ----


def test_by_other_columns_than_the_key_several_rows_match_and_rows_move():
    app = hr.App("foreign", shards=2)
    stream = app.stream("l", "city string, l int, at timestamp", event_time="at")
    table = app.table("users", "id int, city string, at timestamp", key="id", event_time="at")
    stream.join(table.drop("at"), on="city", how="left").named("met").to_topic("out")

    def asks(*rows):
        for nr, (city, second) in enumerate(rows):
            driver.send("l", {"city": city, "l": nr, "at": second * 1000})
        driver.step()
        return sorted((row["l"], row["city"], row["id"]) for row in driver.read("out"))

    def moves(key, city, second):
        driver.send("users", {"id": key, "city": city, "at": second * 1000})

    with Driver(app) as driver:
        moves(1, "a", 0)
        moves(2, "a", 0)
        moves(3, "b", 0)
        moves(4, None, 0)
        assert asks(("a", 1), ("b", 1), ("c", 1)) == [(0, "a", 1), (0, "a", 2), (1, "b", 3), (2, "c", None)]
        driver.send("l", {"city": "a", "l": 10, "at": 9000}, {"city": "b", "l": 11, "at": 9000})
        moves(1, "b", 10)
        moves(4, "c", 10)
        driver.send("l", {"city": "a", "l": 12, "at": 11_000})
        moves(2, None, 12)
        got = asks(("a", 12), ("b", 10), ("c", 10))
        found = [(0, None), (1, 1), (1, 3), (2, 4), (10, 1), (10, 2), (11, 3), (12, 2)]
        assert [row[0::2] for row in got] == found
        driver.delete("users", id=1)
        driver.delete("users", id=3)
        assert asks(("b", 20)) == [(0, "b", None)]


def test_a_table_without_a_key_is_a_bag_of_rows():
    app = hr.App("bag", shards=2)
    stream = app.stream("l", "city string, l int, at timestamp", event_time="at")
    table = app.table("users", "id int, city string, tag string, at timestamp", key="id", event_time="at")
    bag = table.select("city", "tag")
    assert bag.key is None
    stream.join(bag, on="city", how="left").named("met").to_topic("out")

    def asks(city, second):
        driver.send("l", {"city": city, "l": 0, "at": second * 1000})
        driver.step()
        return sorted(row["tag"] or "" for row in driver.read("out"))

    def user(key, city, tag, second):
        driver.send("users", {"id": key, "city": city, "tag": tag, "at": second * 1000})

    with Driver(app) as driver:
        user(1, "a", "x", 0)
        user(2, "a", "x", 0)
        user(3, "a", "y", 0)
        assert asks("a", 1) == ["x", "x", "y"]
        driver.send("l", {"city": "a", "l": 0, "at": 9_000})
        user(2, "b", "x", 10)
        driver.send("l", {"city": "b", "l": 0, "at": 11_000}, {"city": "a", "l": 0, "at": 10_000})
        user(1, "a", "y", 12)
        assert asks("a", 10) == ["x", "x", "x", "x", "y", "y", "y", "y"]
        assert asks("a", 2) == ["y", "y"]
        driver.delete("users", id=1)
        driver.delete("users", id=3)
        assert asks("a", 30) == [""]
        assert asks("b", 30) == ["x"]


def test_an_aggregate_a_ranking_and_the_latest_are_tables_too():
    """A row sees what its epoch leaves of an aggregate or a ranking, and of the latest rows those stored by then."""
    app = hr.App("tables", shards=2)
    stream = app.stream("t", "k string, v int, at timestamp", event_time="at")
    sums = stream.group_by("k").agg(total="sum(v)").named("sums")
    best = stream.group_by("k").top(1, "v desc", rank="nr").named("best").drop("at")
    last = stream.latest("k").drop("at")
    for name, table in (("sums", sums), ("best", best), ("last", last)):
        stream.join(table, on="k", how="left").named(f"with_{name}").to_topic(name)
    with Driver(app) as driver:
        for k, v, second in (("a", 5, 1), ("b", 1, 1), ("a", 7, 3)):
            driver.send("t", {"k": k, "v": v, "at": second * 1000})
        driver.step()
        driver.read("sums")
        driver.read("best")
        assert [(r["k"], r["v"], r["v_right"]) for r in driver.read("last")] == [("a", 5, 5), ("b", 1, 1), ("a", 7, 7)]
        driver.send("t", {"k": "a", "v": 1, "at": 9000}, {"k": "b", "v": 9, "at": 9000})
        driver.step()
        assert {(r["k"], r["total"]) for r in driver.read("sums")} == {("a", 13), ("b", 10)}
        assert {(r["k"], r["v_right"], r["nr"]) for r in driver.read("best")} == {("a", 7, 1), ("b", 9, 1)}


def test_the_one_row_of_a_whole_is_a_table_too():
    app = hr.App("whole", shards=2)
    stream = app.stream("l", "n bigint, at timestamp", event_time="at")
    users = app.table("users", "id int, at timestamp", key="id", event_time="at")
    whole = users.group_by().agg(n="count(*)", most="max(id)")
    stream.join(whole, on="n", how="left").named("met").to_topic("out")
    with Driver(app) as driver:
        for epoch in range(3):
            driver.send("users", *({"id": 2 * epoch + i, "at": epoch * 10_000} for i in range(2)))
            driver.send("l", *({"n": n, "at": epoch * 10_000 + 1000} for n in (2, 4, 6)))
            driver.step()
            found = {row["n"]: row["most"] for row in driver.read("out")}
            assert found == {2: None, 4: None, 6: None} | {2 * epoch + 2: 2 * epoch + 1}


def test_a_change_of_a_key_waits_for_an_earlier_one_whatever_they_agree_in():
    """By another column the changes of a key go to several shards, or nowhere where it is null."""
    app = hr.App("parted", shards=3)
    stream = app.stream("l", "city string, l int, at timestamp", event_time="at")
    table = app.table("users", "id int, city string, at timestamp", key="id", event_time="at").drop("at")
    stream.join(table, on="city").named("met").to_topic("out")
    with Driver(app) as driver:
        moves = dict(zip((1, 2, 6, 8, 9), ("a", None, "b", "c", "d"), strict=True))
        for nr in range(1, 11):
            if nr in moves:
                driver.send("users", {"id": 1, "city": moves[nr], "at": (10 - nr) * 1000})
            driver.send("l", *({"city": city, "l": nr, "at": 0} for city in "abcd"))
        driver.step()
        found = {(row["city"], row["l"]) for row in driver.read("out")}
        assert found == {("a", 1), ("b", 6), ("b", 7), ("c", 8), ("d", 9), ("d", 10)}


def test_what_was_looked_up_stays_and_can_be_joined_and_grouped_again():
    app = hr.App("chain", shards=2)
    stream = app.stream("l", LEFT, event_time="at")
    one = app.table("r", RIGHT, key="k", event_time="since")
    other = app.table("names", "r string, name string", key="r")
    made = stream.join(one, on="k", how="left").named("one").join(other, on="r", how="left").named("other")
    made.group_by("name").agg(n="count(*)").to_view("names")
    with Driver(app) as driver:
        driver.send("names", {"r": "a", "name": "Ann"}, {"r": "b", "name": "Bob"})
        right(driver, "a", 0, key=1)
        right(driver, "b", 0, key=2)
        driver.step()
        for key in (1, 2, 2, 3):
            left(driver, "x", 5, key=key)
        driver.step()
        right(driver, "b", 9, key=1)
        driver.step()
        assert driver.view("names") == [{"name": None, "n": 1}, {"name": "Ann", "n": 1}, {"name": "Bob", "n": 2}]


# ---- state ----


def state_rows(driver, step="met"):
    return driver.counts(step)["state_rows"]


def test_the_state_is_the_rows_of_the_table_that_can_be_met():
    with Driver(app_of(), shards=2) as driver:
        for key in range(10):
            right(driver, "a", 0, key=key)
        driver.step()
        assert state_rows(driver) == 10
        for key in range(4):
            right(driver, None, 1, key=key)
        right(driver, "b", 1, key=9)
        left(driver, "A", 2)
        driver.step()
        assert state_rows(driver) == 6


def crash_app():
    """Two lookups of one table, by its key and by another column, to two topics and a view."""
    app = hr.App("crash", shards=2)
    stream = app.stream("l", LEFT, event_time="at", out_of_order="1 hour")
    table = app.table("r", RIGHT, key="k", event_time="since", out_of_order="1 hour").drop("since")
    stream.join(table, on="k", how="left").named("met").to_topic("out")
    foreign = stream.with_columns(r="concat('r', k % 5)").join(table, on="r").named("foreign")
    foreign.to_topic("foreign")
    foreign.group_by("r").agg(n="count(*)", most="max(k_right)").to_view("counts")
    return app


def scenario(driver, step=disturbed.quietly):
    for number in range(5):
        for key in range(number, 12):
            right(driver, f"r{number}", number * 10 + key % 4, key=key)
        right(driver, None, number * 10 + 5, key=number)
        for key in range(14):
            left(driver, f"l{number}", number * 10 + key % 7, key=key)
        step(driver, number)
    driver.run()
    return driver.read("out"), driver.read("foreign"), driver.view("counts")


@pytest.fixture(scope="module")
def undisturbed():
    with Driver(crash_app(), shards=2) as driver:
        out, foreign, counts = made = scenario(driver)
    assert len(out) == 70
    assert {row["r"] for row in out} == {None, "r0", "r1", "r2", "r3", "r4"}
    assert len(foreign) > 70
    assert len(counts) == 5
    return made


@pytest.mark.parametrize("point", disturbed.points("after_staging", "before_mark"))
def test_a_crash_leaves_no_trace_in_a_lookup(undisturbed, point):
    with Driver(crash_app(), shards=2) as driver:
        assert scenario(driver, disturbed.crashing(point, (0, 3))) == undisturbed


def test_the_state_of_a_lookup_is_rebuilt_from_its_files():
    with Driver(app_of(), shards=2) as driver:
        for number in range(4):
            for key in range(6):
                right(driver, f"r{number}", number, key=key)
            right(driver, None, number, key=number)
            driver.step()
            driver.restart()
        for key in range(7):
            left(driver, "x", 9, key=key)
        driver.step()
        assert sorted((row["k"], row["r"]) for row in driver.read("out") if row["r"]) == [
            (0, "r3"), (1, "r3"), (2, "r3"), (4, "r3"), (5, "r3")
        ]  # fmt: skip


def test_a_changed_lookup_is_refused(tmp_path):
    with Driver(app_of(), storage=tmp_path) as driver:
        driver.step()
    with pytest.raises(PlanChanged, match="how: was left, is inner"):
        Driver(app_of("inner"), storage=tmp_path)


# ---- what is refused ----


def test_what_cannot_be_looked_up_is_refused():
    app = hr.App("refused")
    stream = app.stream("l", LEFT)
    table = app.table("r", RIGHT, key="k")
    with pytest.raises(InvalidPlan, match="how='full' is not possible"):
        stream.join(table, on="k", how="full")
    with pytest.raises(InvalidPlan, match="grace='1 s' has no effect here"):
        stream.join(table, on="k", grace="1 s")
    with pytest.raises(InvalidPlan, match="within='1 s' has no effect here"):
        stream.join(table, on="k", within="1 s")
    with pytest.raises(InvalidPlan, match="a table cannot be joined with a stream"):
        table.join(stream, on="k")
    with pytest.raises(UnknownColumn):
        stream.join(table, on="kk")
    with pytest.raises(UnknownColumn):
        stream.join(table, on="k", where="nothing > 1")
    with pytest.raises(WrongColumnType):
        stream.join(table, on={"l": "k"})
