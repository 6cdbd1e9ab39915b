"""Joins of tables: the vectors, what comes out when, all kinds of sides, skew, restarts and crashes."""

from __future__ import annotations

from datetime import UTC, datetime

import disturbed
import pytest

import headrace as hr
from budget import fast
from headrace.kernels.duck import Duck
from headrace.kernels.joins import growing_side, pairs_by_columns
from headrace.kernels.state.keyed import KeyedState
from headrace.testing import Driver, check_deltas

HOWS = ("inner", "left", "right", "full", "semi", "anti")


def at(second):
    return datetime(2026, 1, 1, tzinfo=UTC).replace(minute=second // 60, second=second % 60)


def pair(how, *, where=None, **options):
    """Two tables of one key, joined."""
    app = hr.App("pair")
    left = app.table("l", "k int, a string, at timestamp", key="k", event_time="at").select("k", "a")
    right = app.table("r", "k int, b string, at timestamp", key="k", event_time="at").select("k", "b")
    joined = left.join(right, on="k", how=how, where=where, **options)
    joined.to_view("joined")
    return app, joined


def said(deltas, *columns):
    """What came and went, in short: `+Aa` or `-Aa`, nulls as dots."""
    return [
        ("+" if row["_weight"] > 0 else "-") + "".join("." if row[c] is None else str(row[c]) for c in columns)
        for row in deltas
    ]


# ---- the vectors ----

SAME_KEY = [  # second, side, value; what inner, left and full then have
    (3, "l", "A", "", "A.", "A."),
    (4, "r", "a", "Aa", "Aa", "Aa"),
    (5, "l", "B", "Ba", "Ba", "Ba"),
    (6, "r", "b", "Bb", "Bb", "Bb"),
    (7, "l", None, "", "", ".b"),
    (8, "r", None, "", "", ""),
    (9, "l", "C", "", "C.", "C."),
    (10, "r", "c", "Cc", "Cc", "Cc"),
    (11, "r", None, "", "C.", "C."),
    (12, "l", None, "", "", ""),
    (14, "r", "d", "", "", ".d"),
    (15, "l", "D", "Dd", "Dd", "Dd"),
]


def send(driver, second, side, value):
    if value is None:
        driver.delete(side, k=1, at=at(second))
    else:
        driver.send(side, {"k": 1, ("a" if side == "l" else "b"): value, "at": at(second)})


@pytest.mark.on_spark("full")
@pytest.mark.parametrize(("how", "column"), [("inner", 3), ("left", 4), ("full", 5)])
def test_the_vector_of_tables_with_one_key(drive, how, column):
    """Each change shows at once, as the old row withdrawn and the new one given, at the time of the change."""
    app, joined = pair(how)
    checked = check_deltas(joined)
    driver, before = drive(app, shards=2), ""
    for row in SAME_KEY:
        send(driver, *row[:3])
        driver.step()
        expected = [f"-{before}"] * bool(before) + [f"+{row[column]}"] * bool(row[column])
        given = checked.read()
        assert said(given, "a", "b") == (expected if before != row[column] else [])
        assert {each["_time"] for each in given} <= {int(at(row[0]).timestamp() * 1e6)}
        before = row[column]
    assert joined.key == ("k",)


@pytest.mark.parametrize(("how", "column"), [("inner", 3), ("left", 4), ("full", 5)])
def test_the_vector_of_tables_with_one_key_in_one_epoch(how, column):
    """However many changes are in the epoch, what comes out is their net."""
    for until in (2, 6, 9, 12):
        app, joined = pair(how)
        checked = check_deltas(joined)
        with Driver(app, shards=2) as driver:
            for row in SAME_KEY[:until]:
                send(driver, *row[:3])
            driver.step()
            last = SAME_KEY[until - 1][column]
            assert said(checked.read(), "a", "b") == [f"+{last}"] * bool(last)


FOREIGN = [  # what is sent; what inner and left then give
    (("l", {"k": "k", "fk": 1}), [], ["+k1."]),
    (("r", {"id": 1, "v": "foo"}), ["+k1foo"], ["-k1.", "+k1foo"]),
    (("l", {"k": "k", "fk": 2}), ["-k1foo"], ["-k1foo", "+k2."]),
    (("r", {"id": 3, "v": "bar"}), [], []),
    (("l", {"k": "k", "fk": 3}), ["+k3bar"], ["-k2.", "+k3bar"]),
    (("l", {"k": "k", "fk": None}), ["-k3bar"], ["-k3bar", "+k.."]),
    (("l", {"k": "q", "fk": 10}, {"k": "r", "fk": 10}), [], ["+q10.", "+r10."]),
    (("r", {"id": 10, "v": "baz"}), ["+q10baz", "+r10baz"], ["-q10.", "-r10.", "+q10baz", "+r10baz"]),
    (("r", {"id": 10, "_deleted": True}), ["-q10baz", "-r10baz"], ["-q10baz", "-r10baz", "+q10.", "+r10."]),
]


def foreign(how):
    app = hr.App("foreign")
    joined = app.table("l", "k string, fk int", key="k").join(
        app.table("r", "id bigint, v string", key="id"), on={"fk": "id"}, how=how
    )
    joined.to_view("joined")
    return app, joined


@pytest.mark.parametrize(("how", "column"), [("inner", 1), ("left", 2)])
def test_the_vector_of_a_foreign_key(drive, how, column):
    """The keys have different types, int and bigint, and are spread over shards."""
    app, joined = foreign(how)
    checked = check_deltas(joined)
    driver = drive(app, shards=3)
    for row in FOREIGN:
        driver.send(row[0][0], *row[0][1:])
        driver.step()
        given = sorted(checked.read(), key=lambda each: (each["_weight"], each["k"]))
        assert said(given, "k", "fk", "v") == row[column]
    assert joined.key == ("k",)
    assert joined.columns == ["k", "fk", "id", "v"]


@pytest.mark.parametrize("how", fast("full", "anti", of=HOWS))
def test_what_comes_out_in_one_epoch_is_what_comes_out_in_many(how):
    for until in (2, 6, 9):
        (app, joined), (again, _) = foreign(how), foreign(how)
        checked = check_deltas(joined)
        with Driver(app, shards=2) as driver, Driver(again, shards=2) as slow:
            for row in FOREIGN[:until]:
                for topic in (driver, slow):
                    topic.send(row[0][0], *row[0][1:])
                slow.step()
            driver.step()
            assert driver.view("joined") == slow.view("joined")
            assert {each["_weight"] for each in checked.read()} <= {1}


# ---- null, keys, condition ----


def rows_of(driver, view, *columns):
    return sorted(
        "".join("." if row[column] is None else str(row[column]) for column in columns) for row in driver.view(view)
    )


@pytest.mark.parametrize(
    ("how", "expected"),
    [("inner", ["1Aa"]), ("left", [".B.", "1Aa"]), ("full", ["..b", ".B.", "1Aa"]), ("anti", [".B"]), ("semi", ["1A"])],
)
def test_null_meets_nothing_not_even_null(how, expected):
    app = hr.App("nulls")
    left = app.table("l", "id int, k int, a string", key="id")
    joined = left.join(app.table("r", "other int, k int, b string", key="other"), on="k", how=how)
    joined.to_view("joined")
    checked = check_deltas(joined)
    with Driver(app, shards=2) as driver:
        driver.send("l", {"id": 1, "k": None, "a": "B"}, {"id": 2, "k": 1, "a": "A"})
        driver.step()
        driver.send("r", {"other": 1, "k": None, "b": "b"}, {"other": 2, "k": 1, "b": "a"})
        driver.step()
        assert rows_of(driver, "joined", *(name for name in joined.columns if name in "kab")) == expected
        assert len(checked.rows) == len(expected)


KEYS = {
    "one key": (lambda u, _: u.join(u.rename(n2="n"), on="id", how="full"), ("id",)),
    "one key and a condition": (lambda u, _: u.join(u.rename(n2="n"), on="id", how="full", where="n > n2"), None),
    "a foreign key": (lambda u, o: o.join(u, on={"buyer": "id"}, how="left"), ("order",)),
    "a foreign key, the other way": (lambda u, o: u.join(o, on={"id": "buyer"}, how="inner"), ("id", "order")),
    "all of both": (lambda u, o: o.join(u, on={"buyer": "id"}, how="full"), ("order", "id")),
    "semi": (lambda u, o: o.join(u.select("n"), on="n", how="semi"), ("order",)),
    "a bag": (lambda u, o: o.join(u.select("n"), on="n"), None),
    "groups that may be null": (
        lambda u, o: o.group_by("buyer").agg(n="count(*)").join(u.group_by("n").agg(m="count(*)").rename(buyer="n"),
                                                                on="buyer", how="full"), None),
    "groups that are not": (
        lambda u, o: o.where("buyer is not null and n > 1").group_by("buyer").agg(n="count(*)").join(
            u.group_by("n").agg(m="count(*)").rename(buyer="n"), on="buyer", how="full"), ("buyer",)),
}  # fmt: skip


@pytest.mark.parametrize(("joining", "key"), KEYS.values(), ids=KEYS)
def test_the_key_of_a_join_is_what_tells_its_rows_apart(joining, key):
    app = hr.App("keys")
    users = app.table("users", "id int, n int", key="id")
    orders = app.table("orders", "order int, buyer int, n int", key="order")
    assert joining(users, orders).key == key


def test_a_condition_decides_beside_the_keys_who_is_alone():
    """Kept beside each row is how many it meets, so that one partner that goes leaves it with the others."""
    app = hr.App("condition")
    left = app.table("l", "id int, k int, n int", key="id")
    right = app.table("r", "rid int, k int, m int", key="rid")
    for how in ("left", "full", "semi", "anti"):
        joined = left.join(right, on="k", how=how, where="n < m").named(how)
        check_deltas(joined)
        joined.to_view(how)
    with Driver(app, shards=2) as driver:
        driver.send("l", {"id": 1, "k": 7, "n": 5})
        driver.send("r", {"rid": 1, "k": 7, "m": 1})
        driver.step()
        assert rows_of(driver, "left", "n", "m") == ["5."]
        assert rows_of(driver, "full", "n", "m") == [".1", "5."]
        driver.send("r", {"rid": 2, "k": 7, "m": 8}, {"rid": 3, "k": 7, "m": 9})
        driver.step()
        assert rows_of(driver, "full", "n", "m") == [".1", "58", "59"]
        assert rows_of(driver, "semi", "n") == ["5"]
        driver.delete("r", rid=2)
        driver.step()
        assert rows_of(driver, "left", "n", "m") == ["59"]
        assert rows_of(driver, "anti", "n") == []
        driver.send("l", {"id": 1, "k": 7, "n": 9})
        driver.step()
        assert rows_of(driver, "full", "n", "m") == [".1", ".9", "9."]
        assert rows_of(driver, "anti", "n") == ["9"]


def test_two_rows_of_one_key_without_a_match_are_two_rows_even_where_all_else_is_null():
    """A full join whose condition parts them is a bag: equal rows of both sides count twice, also when one changes."""
    app, joined = pair("full", where="a = b")
    joined.agg(n="count(*)").to_view("n")
    with Driver(app) as driver:
        driver.send("l", {"k": 1, "a": None, "at": at(1)})
        driver.send("r", {"k": 1, "b": None, "at": at(1)})
        driver.run()
        assert driver.view("joined") == [{"k": 1, "a": None, "b": None}] * 2
        driver.send("r", {"k": 1, "b": "x", "at": at(2)})
        driver.run()
        assert rows_of(driver, "joined", "k", "a", "b") == ["1..", "1.x"]
        assert driver.view("n") == [{"n": 2}]


@pytest.mark.parametrize("where", [None, "a is null"])
def test_rows_of_both_sides_with_nothing_but_nulls_are_two_rows(where):
    """What is compared may be null, and then nothing matches: a full join of groups whose key is null."""
    app = hr.App("pairs")
    rows = app.table("t", "id int, k int", key="id")
    left = rows.group_by("k").agg().named("left").select(a="k")
    right = rows.group_by("k").agg().named("right").select(b="k")
    left.join(right, on={"a": "b"}, how="full", where=where).to_view("joined")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "k": None})
        driver.run()
        assert driver.view("joined") == [{"a": None, "b": None}] * 2
        driver.delete("t", id=1)
        driver.run()
        assert driver.view("joined") == []


# ---- what sides there are ----


@pytest.mark.on_spark
def test_two_windowed_tables_meet_on_key_and_window(drive):
    """A click-through rate of each minute, without a join of streams; late rows correct both."""
    app = hr.App("windows")
    minute = hr.tumbling("1 minute", grace="1 hour")
    shown, clicked = (
        app.stream(topic, "q string, at timestamp", event_time="at")
        .group_by("q")
        .window(minute)
        .agg(**{topic: "count(*)"})
        for topic in ("shown", "clicked")
    )
    rate = shown.join(clicked, on=("q", "window_start", "window_end"), how="left")
    rate = rate.with_columns(rate="coalesce(clicked, 0) / shown")
    rate.to_view("rate")
    assert rate.key == ("q", "window_start", "window_end")
    driver = drive(app, shards=2)
    driver.send("shown", *({"q": "a", "at": at(s)} for s in (1, 2, 61)))
    driver.send("clicked", {"q": "a", "at": at(5)})
    driver.run()
    assert [(row["window_start"], row["rate"]) for row in driver.view("rate")] == [(at(0), 0.5), (at(60), 0.0)]
    driver.send("clicked", {"q": "a", "at": at(6)}, {"q": "a", "at": at(70)}, {"q": "b", "at": at(70)})
    driver.run()
    assert [(row["window_start"], row["rate"]) for row in driver.view("rate")] == [(at(0), 1.0), (at(60), 1.0)]


def test_final_results_are_a_table_to_join():
    app = hr.App("final")
    rows = app.stream("rows", "k string, at timestamp", event_time="at")
    windows = rows.group_by("k").window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)")
    names = app.table("names", "k string, name string", key="k")
    joined = windows.join(names, on="k", how="left")
    joined.to_view("joined")
    checked = check_deltas(joined)
    with Driver(app) as driver:
        driver.send("rows", {"k": "a", "at": at(1)}, {"k": "a", "at": at(12)}, {"k": "b", "at": at(31)})
        driver.run()
        assert rows_of(driver, "joined", "k", "n", "name") == ["a1.", "a1."]
        driver.send("names", {"k": "a", "name": "ann"})
        driver.run()
        assert rows_of(driver, "joined", "k", "n", "name") == ["a1ann", "a1ann"]
        assert len(checked.rows) == 2


def test_a_ranking_a_latest_and_a_join_are_sides_too():
    """The two best bids of each item, with the item, and the item's seller's last place."""
    app = hr.App("sides")
    best = app.table("bids", "bid int, item int, price int", key="bid").group_by("item").top(2, "price", rank="place")
    items = app.table("items", "item int, seller string", key="item")
    places = app.stream("places", "seller string, town string, at timestamp", event_time="at").latest("seller")
    joined = best.join(items, on="item").named("with_item").join(places, on="seller", how="left").named("with_place")
    joined.to_view("joined")
    check_deltas(joined)
    with Driver(app, shards=2) as driver:
        driver.send("bids", *({"bid": n, "item": n % 2, "price": n} for n in range(8)))
        driver.send("items", {"item": 0, "seller": "s"}, {"item": 1, "seller": "t"})
        driver.send("places", {"seller": "s", "town": "x", "at": at(9)}, {"seller": "s", "town": "y", "at": at(5)})
        driver.step()
        assert rows_of(driver, "joined", "item", "place", "price", "town") == ["016x", "024x", "117.", "125."]
        driver.delete("bids", bid=6)
        driver.send("places", {"seller": "t", "town": "z", "at": at(9)})
        driver.step()
        assert rows_of(driver, "joined", "item", "place", "price", "town") == ["014x", "022x", "117z", "125z"]
    assert joined.key == ("item", "place")


# ---- what it costs ----


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("where", [None, "a <> b"])
def test_a_value_that_half_of_the_rows_have_costs_nothing_unless_it_changes(how, where, monkeypatch):
    """Of 4 000 rows on the left 2 000 meet one on the right: the epoch of a further left row looks at a handful."""
    app = hr.App("skew")
    left = app.table("l", "id int, k int, a string", key="id")
    joined = left.join(app.table("r", "rid int, k int, b string", key="rid"), on="k", how=how, where=where).named("j")
    joined.to_view("joined")
    with Driver(app) as driver:
        driver.send("l", *({"id": n, "k": 0 if n % 2 else n, "a": "x"} for n in range(4000)))
        driver.send("r", *({"rid": n, "k": n, "b": "y"} for n in range(0, 2000, 2)))
        driver.step()
        driver.send("l", {"id": 5000, "k": 0, "a": "x"})
        driver.send("r", {"rid": 5000, "k": -1, "b": "y"})
        assert looked_at(driver, monkeypatch) <= 12
        if how in ("semi", "anti") and where is None:
            driver.send("r", {"rid": 5001, "k": 0, "b": "y"})  # one partner more for 2 001 rows that had one
            assert looked_at(driver, monkeypatch) <= 4


def looked_at(driver, monkeypatch):
    """Step, and return how many rows the join looked at; what it adds to its state is little."""
    before, asked, computed = set(driver.storage.glob("state/j/*/*")), [], []
    find, register = KeyedState.find, Duck.register_large

    def finding(state, *arguments):
        found = find(state, *arguments)
        asked.append(sum(part.num_rows for part in found))
        return found

    def registering(duck, sql):
        name = register(duck, sql)
        computed.append(duck.rows(f"SELECT count(*) FROM {name}")[0][0])
        return name

    with monkeypatch.context() as patched:
        patched.setattr(KeyedState, "find", finding)
        patched.setattr(Duck, "register_large", registering)
        driver.step()
    assert asked or computed
    assert all(path.stat().st_size < 6000 for path in set(driver.storage.glob("state/j/*/*")) - before)
    return max(sum(asked), sum(computed))


# ---- restarts and crashes ----


def several(storage):
    app = hr.App("several", storage=storage)
    left = app.table("l", "id int, k int, n int", key="id")
    right = app.table("r", "id int, k int, m int", key="id")
    joins = {
        "inner": left.join(right, on={"k": "id"}).named("inner"),
        "full": left.join(right, on="id", how="full").named("full"),
        "left": left.join(right, on="k", how="left", where="n < m").named("left"),
        "semi": left.join(right, on="k", how="semi").named("semi"),
        "anti": left.join(left, on={"n": "id"}, how="anti").named("anti"),
    }
    for name, joined in joins.items():
        joined.to_view(name)
    joins["inner"].to_topic("inner")
    joins["full"].to_topic("full")
    return app, {name: check_deltas(joined) for name, joined in joins.items()}


def changes(epoch):
    for n in range(20):
        nr = epoch * 20 + n
        if nr % 7 == 3:
            yield "lr"[n % 2], {"id": nr % 9, "_deleted": True}
        else:
            yield "l", {"id": nr * 5 % 9, "k": nr % 4 or None, "n": nr % 11}
            yield "r", {"id": nr * 4 % 9, "k": nr % 3, "m": nr % 13}


def views(driver):
    return {name: driver.view(name) for name in ("inner", "full", "left", "semi", "anti")}


def never_stopped(folder, epochs):
    app, checked = several(folder)
    with Driver(app, storage=folder, shards=2) as driver:
        for epoch in range(epochs):
            for topic, row in changes(epoch):
                driver.send(topic, row)
            driver.step()
        return views(driver), [driver.read("inner"), driver.read("full")], {n: c.rows for n, c in checked.items()}


@pytest.mark.parametrize("point", disturbed.points("during_commit", "before_views"))
def test_a_crash_at_any_point_changes_nothing(tmp_path, point):
    """In the first epoch and in a later one; what is handed over again is the same."""
    app, checked = several(tmp_path / "crashed")
    with Driver(app, storage=tmp_path / "crashed", shards=2) as driver:
        for epoch in range(3):
            for topic, row in changes(epoch):
                driver.send(topic, row)
            if epoch == 0 or (epoch == 2 and point != "during_snapshot"):
                driver.crash(at=point)
                driver.restart()
            driver.run()
        crashed = views(driver), [driver.read("inner"), driver.read("full")], {n: c.rows for n, c in checked.items()}
    assert crashed == never_stopped(tmp_path / "whole", 3)
    assert all(len(rows) > 2 for rows in crashed[0].values())


@pytest.mark.parametrize("how", fast("inner", "full", "anti", of=HOWS))
def test_rows_that_an_epoch_only_adds_are_equal_to_rows_that_are_looked_up(how, monkeypatch):
    """The same deltas both ways, of epochs that add, add again, replace and withdraw; keys, bags, and equal rows."""

    def deltas(by_hashes):
        monkeypatch.setattr(growing_side, "_only_adds", only_adds if by_hashes else lambda *_: False)
        app = hr.App("both")
        left = app.table("l", "id int, k int, a string", key="id")
        right = app.table("r", "rid int, k int, b string", key="rid")
        left.join(right, on="k", how=how).named("keyed").changes().to_topic("keyed")
        left.select("k", "a").join(right.select("k", "b"), on="k", how=how).named("bags").to_view("bags")
        found = []
        with Driver(app) as driver:
            for step in (
                lambda: driver.send("l", *({"id": n, "k": n % 3, "a": "x" * (n % 2)} for n in range(6))),
                lambda: driver.send("r", *({"rid": n, "k": n % 4, "b": None} for n in range(6))),
                lambda: driver.send("l", {"id": 7, "k": 1, "a": "new"}, {"id": 8, "k": None, "a": "new"}),
                lambda: driver.send("l", {"id": 7, "k": 2, "a": "moved"}, {"id": 9, "k": 2, "a": "moved"}),
                lambda: driver.send("r", {"rid": 1, "k": 2, "b": "moved"}),
                lambda: driver.delete("l", id=7),
                lambda: driver.send("l", {"id": 7, "k": 1, "a": "new"}),
            ):
                step()
                driver.step()
                found.append([sorted(map(str, rows)) for rows in (driver.read("keyed"), driver.view("bags"))])
        return found

    monkeypatch.setattr(pairs_by_columns, "covers", lambda *_: False)
    only_adds = growing_side._only_adds  # noqa: SLF001 -- the switch
    assert deltas(by_hashes=True) == deltas(by_hashes=False)


def test_a_row_of_a_table_without_a_key_that_changes_in_other_columns_keeps_its_pair():
    """One side reads `k` alone: what comes and goes of its single row cancels out, and nothing is left to group."""
    app = hr.App("self")
    rows = app.table("rows", "id int, k string", key="id")
    first = rows.group_by().agg(id="min(id)", k="max(k)").named("first").select("id", "k")
    app.sql("SELECT x.id AS id, k FROM x JOIN y USING (k)", name="pairs", x=first, y=first).to_view("pairs")
    with Driver(app) as driver:
        driver.send("rows", {"id": 5, "k": "é"})
        driver.run()
        assert driver.view("pairs") == [{"id": 5, "k": "é"}]
        driver.send("rows", {"id": 3, "k": "é"})
        driver.run()
        assert driver.view("pairs") == [{"id": 3, "k": "é"}]
