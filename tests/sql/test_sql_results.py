"""What views of queries hold, step by step."""

from __future__ import annotations

import pytest
from sql_sources import declare

import headrace as hr
from headrace.base.errors import PlanChanged
from headrace.testing import Driver


def app_of(text, **options):
    app = hr.App("shop")
    declare(app)
    app.sql(text, **options).to_view("v")
    return app


def order(number, buyer, price):
    return {"id": number, "buyer": buyer, "price": price, "at": "2026-01-01 10:00"}


def values(driver):
    return [tuple(row.values()) for row in driver.view("v")]


def test_a_query_over_a_table_follows_inserts_updates_and_deletes():
    text = "select u.city, sum(o.price) as spent from orders o join users u on o.buyer = u.id group by u.city"
    with Driver(app_of(text)) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Rome"}, {"id": 2, "name": "bob", "city": "Oslo"})
        driver.send("orders", order(10, 1, 5.0), order(11, 2, 7.0), order(12, 1, 1.0))
        driver.step()
        assert values(driver) == [("Oslo", 7.0), ("Rome", 6.0)]
        driver.send("users", {"id": 2, "name": "bob", "city": "Rome"})
        driver.delete("orders", id=10)
        driver.step()
        assert values(driver) == [("Rome", 8.0)]


@pytest.mark.parametrize("point", ["before_staging", "during_commit", "before_views"])
def test_a_view_of_a_query_survives_a_crash_and_a_restart(point):
    text = (
        "select name, (select count(*) from orders where buyer = u.id) as orders from users u "
        "where exists (select 1 from orders o where o.buyer = u.id and o.price > 2)"
    )
    with Driver(app_of(text)) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Rome"}, {"id": 2, "name": "bob", "city": "Oslo"})
        driver.send("orders", order(10, 1, 5.0), order(11, 2, 1.0))
        driver.step()
        driver.send("orders", order(12, 1, 9.0), order(11, 2, 3.0))
        driver.crash(at=point)
        driver.restart()
        driver.run()
        assert values(driver) == [("ann", 2), ("bob", 1)]
        driver.delete("orders", id=11)
        driver.run()
        assert values(driver) == [("ann", 2)]


def test_a_query_that_says_the_same_goes_on_with_its_state(tmp_path):
    """A stateless change passes; the state of before is used."""
    with Driver(app_of("select buyer, count(*) as n from orders group by buyer"), storage=tmp_path) as driver:
        driver.send("orders", order(1, 7, 1.0), order(2, 7, 1.0))
        driver.step()
    with Driver(app_of("select o.buyer, COUNT(*) as n from orders as o group by 1"), storage=tmp_path) as driver:
        driver.send("orders", order(3, 7, 1.0))
        driver.step()
        assert values(driver) == [(7, 3)]


def test_a_query_whose_step_keeps_something_else_is_computed_anew_from_its_table(tmp_path):
    with Driver(app_of("select buyer, count(*) as n from orders group by buyer"), storage=tmp_path) as driver:
        driver.send("orders", order(1, 7, 1.0))
        driver.step()
    changed = app_of("select buyer, sum(price) as n from orders group by buyer")
    with Driver(changed, storage=tmp_path) as driver:
        assert values(driver) == [(7, 1.0)]
        driver.send("orders", order(2, 7, 2.0))
        driver.step()
        assert values(driver) == [(7, 3.0)]


def test_groups_whose_keys_are_null_on_both_sides_of_a_full_join_are_two_rows():
    """Nothing tells them apart, so such a join has no key; its view holds both."""
    text = (
        "select a.n, b.m from (select buyer, count(*) as n from orders where price < 5 group by buyer) a "
        "full join (select buyer, count(*) as m from orders where price > 3 group by buyer) b using (buyer)"
    )
    with Driver(app_of(text)) as driver:
        driver.send("orders", order(1, None, 1.0), order(2, None, 9.0), order(3, 7, 4.0))
        driver.step()
        assert sorted(values(driver), key=str) == [(1, 1), (1, None), (None, 1)]
        driver.delete("orders", id=2)
        driver.step()
        assert sorted(values(driver), key=str) == [(1, 1), (1, None)]


def test_not_in_over_columns_without_nulls_is_an_anti_join():
    text = "select id from users where id not in (select buyer from orders where buyer is not null)"
    with Driver(app_of(text)) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Rome"}, {"id": 2, "name": "bob", "city": "Oslo"})
        driver.send("orders", order(10, 1, 5.0), order(11, None, 1.0))
        driver.step()
        assert values(driver) == [(2,)]


def test_late_rows_of_a_windowed_query_are_where_the_verbs_have_them():
    app = hr.App("shop")
    declare(app)
    counts = app.sql(
        "select window.start as start, count(*) as n from clicks group by window(at, '1 minute')", grace="5 seconds"
    )
    counts.to_view("v")
    with Driver(app) as driver:
        for at in ("10:00:10", "10:05:00", "10:00:20"):
            driver.send("clicks", {"search_id": "a", "url": "x", "user": "ann", "at": f"2026-01-01 {at}"})
            driver.run()
        assert [row["n"] for row in driver.view("v")] == [1, 1]
        assert [str(row["at"])[11:19] for row in driver.late("clicks_agg")] == ["10:00:20"]


def test_a_stream_looks_a_table_up_as_it_is_when_the_row_arrives():
    text = (
        "select c.url, u.city from clicks c left join users for system_time as of current_timestamp() u "
        "on c.user = u.name"
    )
    app = app_of(text)
    with Driver(app) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Rome"})
        driver.step()
        driver.send("clicks", {"search_id": "a", "url": "x", "user": "ann", "at": "2026-01-01 10:00"})
        driver.step()
        driver.send("users", {"id": 1, "name": "ann", "city": "Oslo"})
        driver.step()
        assert values(driver) == [("x", "Rome")]


def test_a_stream_looks_a_table_up_as_of_its_event_time():
    app = hr.App("shop")
    app.stream("orders", "id bigint, currency string, at timestamp", event_time="at")
    app.table("rates", "currency string, rate double, at timestamp", key="currency", event_time="at", history="1 hour")
    app.sql(
        "select o.id, r.rate from orders o join rates for system_time as of o.at r on o.currency = r.currency",
        grace="0 seconds",
    ).to_view("v")
    with Driver(app) as driver:
        driver.send("rates", {"currency": "EUR", "rate": 1.14, "at": "2026-01-01 12:00"})
        driver.send("rates", {"currency": "EUR", "rate": 1.10, "at": "2026-01-01 12:05"})
        driver.send("orders", {"id": 1, "currency": "EUR", "at": "2026-01-01 12:00"})
        driver.send("orders", {"id": 2, "currency": "EUR", "at": "2026-01-01 12:06"})
        driver.finish()
        assert values(driver) == [(1, 1.14), (2, 1.10)]


def test_windows_over_a_table_take_a_row_out_of_the_window_that_it_was_in():
    app = hr.App("shop")
    app.table("cars", "id bigint, at timestamp", key="id", event_time="at", out_of_order="1 hour")
    app.sql(
        "select window.start as start, count(*) as n from cars group by window(at, '1 minute')", grace="1 hour"
    ).to_view("v")
    with Driver(app) as driver:
        driver.send("cars", {"id": 1, "at": "2026-01-01 10:00:10"}, {"id": 2, "at": "2026-01-01 10:00:20"})
        driver.step()
        driver.send("cars", {"id": 1, "at": "2026-01-01 10:05:00"})
        driver.step()
        assert [(row["start"].minute, row["n"]) for row in driver.view("v")] == [(0, 1), (5, 1)]


def test_a_null_safe_equality_joins_null_with_null():
    """`<=>` is an equality like `=`: it connects two tables, and rows without a value match each other."""
    app = hr.App("nulls")
    app.table("l", "id int, k string", key="id")
    app.table("r", "id int, k string", key="id")
    app.sql("select l.id as a, r.id as b from l left join r on l.k <=> r.k").to_view("v")
    with Driver(app, shards=3) as driver:
        driver.send("l", {"id": 1, "k": "x"}, {"id": 2, "k": None}, {"id": 3, "k": "y"})
        driver.send("r", {"id": 7, "k": "x"}, {"id": 8, "k": None})
        driver.step()
        assert values(driver) == [(1, 7), (2, 8), (3, None)]
        driver.delete("r", id=8)
        driver.send("r", {"id": 9, "k": "y"})
        driver.step()
        assert values(driver) == [(1, 7), (2, None), (3, 9)]


@pytest.mark.parametrize(
    "joined", ["t for system_time as of s.at x", "t x for system_time as of s.at", "t as x for system_time as of s.at"]
)
def test_an_alias_may_be_before_the_time_of_a_lookup_too(joined):
    app = hr.App("aliases")
    app.stream("s", "id int, k int, at timestamp", event_time="at")
    app.table("t", "k int, w int, since timestamp", key="k", event_time="since")
    found = app.sql(f"select s.id, x.w from s join {joined} on s.k = x.k", grace="1 s")
    found.to_topic("out")
    with Driver(app) as driver:
        driver.send("t", {"k": 1, "w": 5, "since": 0})
        driver.send("s", {"id": 1, "k": 1, "at": 1000})
        driver.finish()
        assert driver.read("out") == [{"id": 1, "w": 5}]


def test_in_is_unknown_where_a_null_may_be_the_value_that_is_looked_for():
    """Of no values, false; Spark 4.3 says false for unknown in a column, SQL null."""
    text = "select id, buyer in (select id from users where city = 'Rome') as there from orders"
    app = hr.App("shop")
    declare(app)
    app.sql(text, name="one").to_view("v")
    app.sql("select id from users where id not in (select buyer from orders)", name="two").to_view("w")
    with Driver(app, shards=3) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Oslo"}, {"id": 2, "name": "bob", "city": "Oslo"})
        driver.send("orders", order(10, 1, 5.0), order(11, 2, 1.0))
        driver.step()
        assert (values(driver), driver.view("w")) == ([(10, False), (11, False)], [])
        driver.send("orders", order(11, None, 1.0))
        driver.step()
        assert (values(driver), driver.view("w")) == ([(10, False), (11, False)], [])
        driver.send("users", {"id": 1, "name": "ann", "city": "Rome"})
        driver.delete("orders", id=11)
        driver.step()
        assert (values(driver), driver.view("w")) == ([(10, True)], [{"id": 2}])
        driver.send("orders", order(11, None, 1.0))
        driver.step()
        assert (values(driver), driver.view("w")) == ([(10, True), (11, None)], [])


def test_a_row_is_in_each_grouping_and_a_null_of_the_data_is_a_group_of_its_own():
    text = "select buyer, count(*) as n, grouping(buyer) as all from orders group by rollup(buyer)"
    with Driver(app_of(text), shards=2) as driver:
        driver.send("orders", order(1, 7, 1.0), order(2, None, 1.0), order(3, 7, 1.0))
        driver.step()
        assert values(driver) == [(None, 1, 0), (None, 3, 1), (7, 2, 0)]
        driver.delete("orders", id=2)
        driver.crash(at="during_commit")
        driver.restart()
        driver.run()
        assert values(driver) == [(None, 2, 1), (7, 2, 0)]


def test_rows_of_one_side_alone_come_and_go_as_often_as_they_count():
    text = "select buyer from orders where price < 5 except all select buyer from orders where price >= 5"
    with Driver(app_of(text), shards=2) as driver:
        driver.send("orders", *(order(number, 7, 1.0) for number in range(3)), order(9, None, 1.0))
        driver.step()
        assert values(driver) == [(None,), (7,), (7,), (7,)]
        driver.send("orders", order(2, 7, 6.0), order(8, None, 9.0))
        driver.step()
        assert values(driver) == [(7,)]


def test_a_value_of_rows_before_is_that_of_each_row():
    """The rows of the outer query have no key, some are equal, and null is compared, too."""
    text = (
        "select buyer, (select sum(p.price) from orders p where p.buyer <=> o.buyer and p.buyer = o.buyer and "
        "p.price < o.price) as less from (select buyer, price from orders) o"
    )
    with Driver(app_of(text), shards=2) as driver:
        driver.send("orders", order(1, 7, 1.0), order(2, 7, 2.0), order(3, 7, 2.0), order(4, None, 1.0))
        driver.step()
        assert sorted(values(driver), key=str) == [(7, 1.0), (7, 1.0), (7, None), (None, None)]
        driver.send("orders", order(1, 7, 2.0))
        driver.step()
        assert sorted(values(driver), key=str) == [(7, None), (7, None), (7, None), (None, None)]


def test_equalities_with_one_column_of_a_table_are_a_join_and_a_test():
    text = "select o.id from orders o join users u on o.buyer = u.id and o.id = u.id"
    with Driver(app_of(text)) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Oslo"}, {"id": 2, "name": "bob", "city": "Oslo"})
        driver.send("orders", order(1, 1, 5.0), order(2, 1, 1.0))
        driver.step()
        assert values(driver) == [(1,)]


def click(search, user, second):
    return {"search_id": search, "url": "x", "user": user, "at": f"2026-01-01 10:00:{second:02}"}


def search(search, user, second):
    return {"search_id": search, "query": search, "user": user, "at": f"2026-01-01 10:00:{second:02}"}


@pytest.mark.parametrize("way", ["exists", "join"])
def test_a_row_of_a_stream_comes_out_once_it_has_a_match_or_when_it_can_have_none(way):
    near = "s.search_id = c.search_id and c.at between s.at and s.at + interval 5 seconds"
    app = hr.App("shop")
    declare(app)
    for name, no in (("found", False), ("lost", True)):
        if way == "exists":
            rest = f"where {'not ' if no else ''}exists (select 1 from clicks c where {near})"
        else:
            rest = f"left {'anti' if no else 'semi'} join clicks c on {near}"
        app.sql(f"select query, s.at from searches s {rest}", name=name).to_topic(name)
    with Driver(app, shards=2) as driver:
        driver.send("searches", search("a", "ann", 0), search("b", "bob", 1), search("a", "cy", 50))
        driver.send("clicks", click("a", "ann", 3), click("a", "ann", 4))
        driver.step()
        assert [(row["query"], row["at"].second) for row in driver.read("found")] == [("a", 0)]
        driver.send("clicks", click("a", "ann", 5), click("b", "bob", 40))
        driver.run()
        assert driver.read("found") == []
        driver.finish()
        assert driver.read("found") == []
        assert [(row["query"], row["at"].second) for row in driver.read("lost")] == [("b", 1), ("a", 50)]


def test_streams_without_a_bound_of_time_are_joined_as_growing_tables():
    app = hr.App("shop")
    declare(app)
    text = "select s.query, count(*) as n from searches s join clicks c on s.search_id = c.search_id group by s.query"
    app.sql(text).to_view("v")
    assert "unbounded: the left and the right side only grows" in str(app.explain())
    with Driver(app, shards=2) as driver:
        driver.send("searches", search("a", "ann", 0))
        driver.step()
        driver.send("clicks", click("a", "ann", 59), click("a", "bob", 1), click("b", "bob", 1))
        driver.step()
        assert values(driver) == [("a", 2)]


def test_each_row_has_aggregates_over_the_rows_before_it_in_event_time():
    """Corrected while rows may still come before it; functions of one window are one step."""
    text = (
        "select user, second(at) as s, count(*) over (partition by user order by at rows between 1 preceding and "
        "current row) as n, second(lag(at) over (partition by user order by at)) as before, row_number() over "
        "(partition by user order by at) as nr from clicks"
    )
    with Driver(app_of(text), shards=2) as driver:
        driver.send("clicks", click("a", "ann", 3), click("a", "ann", 9), click("a", "bob", 4))
        driver.step()
        assert sorted(values(driver)) == [("ann", 3, 1, None, 1), ("ann", 9, 2, 3, 2), ("bob", 4, 1, None, 1)]
        driver.send("clicks", click("a", "ann", 5))
        driver.step()
        assert ("ann", 9, 2, 5, 3) in values(driver)
        assert len(values(driver)) == 4


def test_rows_are_numbered_without_a_limit_where_their_order_is_that_of_time():
    numbered = "select *, row_number() over (partition by user order by at) as nr from clicks"
    text = f"select user from ({numbered}) where nr % 2 = 0"
    app = hr.App("shop")
    declare(app)
    app.sql(text, emit="final").to_topic("second")
    with Driver(app) as driver:
        driver.send("clicks", click("a", "ann", 3), click("a", "ann", 9), click("a", "bob", 4))
        driver.step()
        assert driver.read("second") == []
        driver.finish()
        assert driver.read("second") == [{"user": "ann"}]


def test_changed_values_are_another_source(tmp_path):
    """Their content is part of what a storage keeps; the same content in other words is the same."""

    def run(rows):
        text = f"select t.a, count(*) as n from (values {rows}) as t(a) group by t.a"
        with Driver(app_of(text, name="q"), storage=tmp_path) as driver:
            driver.run()
            return values(driver)

    assert run("(1), (2), (2)") == run("(1), (1 + 1), (4 - 2)") == [(1, 1), (2, 2)]
    says = '(?s)the bounded table "q_values_t" has other rows than before.*headrace reset FILE'
    with pytest.raises(PlanChanged, match=says):
        run("(1), (2), (3)")


def test_values_are_one_table_wherever_their_query_is_read():
    text = "with t(a) as (values (1), (2)) select x.a, y.a as b from t x join t y on x.a = y.a - 1"
    assert str(app_of(text).explain()).count("[values]") == 1


SPENT = "from orders o where o.buyer = u.id"
OVER_NOTHING = {
    f"select id, (select coalesce(sum(price), 0) {SPENT}) as v from users u": [(1, 5.0), (2, 0.0)],
    f"select id from users u where (select coalesce(sum(price), 0) {SPENT}) < 9": [(1,), (2,)],
    f"select id from users u where (select max(price) is null {SPENT})": [(2,)],
    f"select id, (select count(*) + 10 * nvl(max(o.id), 3) {SPENT} and o.id > u.id) as v from users u": [
        (1, 101),
        (2, 30),
    ],
    f"select id, (select collect_list(price) {SPENT}) as v from users u": [(1, [5.0]), (2, [])],
    f"select id, (select regr_count(price, price) {SPENT}) as v from users u": [(1, 1), (2, 0)],
    "select id, (select coalesce(max(price), -1) from orders where price > 9) as v from users": [(1, -1.0), (2, -1.0)],
    f"select id from users u where id + 4 in (select max(price) {SPENT})": [(1,)],
    f"select id, id + 4 not in (select max(price) {SPENT}) as v from users u": [(1, False), (2, None)],
    "select id from users where id not in (select max(buyer) from orders where price > 9)": [],
    "select id from users where 0 in (select count(*) from orders where price > 9)": [(1,), (2,)],
    f"select id from users u where exists (select count(*) {SPENT}) and id > (select count(*) {SPENT})": [(2,)],
    f"select id from users u where not exists (select count(*) {SPENT}) or id > (select count(*) {SPENT})": [(2,)],
    "select city, count(*) as n from users group by city having count(*) > (select coalesce(max(price), 0) from "
    "orders where price > 9)": [("Oslo", 1), ("Rome", 1)],
}


@pytest.mark.parametrize("text", OVER_NOTHING)
def test_a_subquery_of_an_aggregate_has_a_row_where_it_finds_nothing(text):
    """What is not null over no rows: counts, lists, and what an expression makes of nulls. As batch Spark says."""
    with Driver(app_of(text)) as driver:
        driver.send("users", {"id": 1, "name": "ann", "city": "Rome"}, {"id": 2, "name": "bob", "city": "Oslo"})
        driver.send("orders", order(10, 1, 5.0), order(11, 2, 20.0))
        driver.step()
        driver.delete("orders", id=11)
        driver.step()
        assert sorted(values(driver)) == OVER_NOTHING[text]


def test_elements_of_a_row_that_changes_are_withdrawn_with_their_groups():
    words = "users lateral view explode(split(name, ' ')) as word"
    text = f"select word, count(*) as n from {words} where word <> '' group by all"
    with Driver(app_of(text)) as driver:
        driver.send("users", {"id": 1, "name": "ann lee ann", "city": None}, {"id": 2, "name": None, "city": None})
        driver.step()
        assert values(driver) == [("ann", 2), ("lee", 1)]
        driver.send("users", {"id": 1, "name": "lee", "city": None}, {"id": 2, "name": "  bo", "city": None})
        driver.step()
        assert values(driver) == [("bo", 1), ("lee", 1)]


def test_elements_of_rows_of_a_stream_have_their_event_time():
    text = """
        select window.start as minute, word, count(*) as n from (select explode(split(query, ' ')) as word, * except
        (query) from searches) group by window(at, '1 minute'), word"""
    with Driver(app_of(text, grace="0 seconds", emit="final")) as driver:
        for second, query in ((5, "red shoe"), (30, "red"), (59, "hat"), (90, "late"), (6, "so late")):
            at = f"2026-01-01 10:{second // 60:02d}:{second % 60:02d}"
            driver.send("searches", {"search_id": str(second), "query": query, "user": "u", "at": at})
            driver.step()
        assert [(row["word"], row["n"]) for row in driver.view("v")] == [("hat", 1), ("red", 2), ("shoe", 1)]
