"""A query and the verbs that say the same are one plan."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sql_sources import declare

import headrace as hr
from headrace.base.schema import parse as parse_schema
from headrace.dsl.sql.parsing import sql_text
from headrace.expressions import aggregates, scalar
from headrace.expressions.grammar import parse
from headrace.expressions.table import FAMILIES

SCHEMA = parse_schema(  # the columns of the examples
    "i int, j int, l bigint, b tinyint, h smallint, f float, d double, e double, m decimal(10,2), n decimal(18,6),"
    "w decimal(38,10), u decimal(3,3), p boolean, q boolean, s string, t string, bin binary, bin2 binary,"
    "day date, day2 date, at timestamp, at2 timestamp, ntz timestamp_ntz, ints array<int>, texts array<string>,"
    "counts map<string,int>, pair struct<a:int,b:string>, reals array<double>, json string"
)
GRACE = {"grace": "30 seconds"}

# each query, its options, and the verbs
TWINS = {
    "columns": (
        "select user, upper(url) as link from clicks",
        {},
        lambda s: s["clicks"].select("user", link="upper(url)"),
    ),
    "all columns": ("select * from clicks", {}, lambda s: s["clicks"]),
    "where": (
        "select user, url from clicks c where c.url is not null and (user <> 'bot' or length(url) > 3)",
        {},
        lambda s: s["clicks"].where("url is not null and (user <> 'bot' or length(url) > 3)").select("user", "url"),
    ),
    "group by": (
        "select user, count(*) as n, sum(length(url)) / count(*) as mean from clicks group by user",
        {},
        lambda s: s["clicks"].group_by("user").agg(n="count(*)", mean="sum(length(url)) / count(*)"),
    ),
    "group by an expression, by its place": (
        "select date_trunc('hour', at) as hour, count(distinct user) as users from clicks group by 1",
        {},
        lambda s: s["clicks"].group_by(hour="date_trunc('hour', at)").agg(users="count(distinct user)"),
    ),
    "group by an alias": (
        "select length(url) as size, max(user) as last from clicks group by size",
        {},
        lambda s: s["clicks"].group_by(size="length(url)").agg(last="max(user)"),
    ),
    "having": (
        "select user, count(*) as n from clicks group by user having count(*) > 3 and user <> 'bot'",
        {},
        lambda s: s["clicks"].group_by("user").agg(n="count(*)").where("n > 3 and user <> 'bot'"),
    ),
    "having what is not given out": (
        "select user from clicks group by user having max(at) > min(at)",
        {},
        lambda s: (
            s["clicks"].group_by("user").agg(_having="max(at)", _having_2="min(at)").where("_having > _having_2")
            .select("user")
        ),
    ),
    "distinct": (
        "select distinct user, url from clicks",
        {},
        lambda s: s["clicks"].select("user", "url").group_by("user", "url").agg(),
    ),
    "union all": (
        "select user from clicks union all select user from searches",
        {},
        lambda s: s["clicks"].select("user").union(s["searches"].select("user")),
    ),
    "union": (
        "select id from orders union select id from users",
        {},
        lambda s: s["orders"].select("id").union(s["users"].select("id")).group_by("id").agg(),
    ),
    "rollup": (
        "select buyer, count(*) as n, grouping(buyer) as g from orders group by rollup(buyer)",
        {},
        lambda s: (
            s["orders"].with_columns(buyer_2="buyer", _grouping="0")
            .union(s["orders"].with_columns(buyer_2="case when false then buyer end", _grouping="1"))
            .group_by("buyer_2", "_grouping").agg(n="count(*)")
            .select(buyer="buyer_2", n="n", g="cast(case _grouping when 0 then 0 when 1 then 1 end as tinyint)")
        ),
    ),
    "except": (
        "select id from orders except select id from users",
        {},
        lambda s: (
            s["orders"].select("id").with_columns(_side="1")
            .union(s["users"].select("id").with_columns(_side="2"))
            .group_by("id").agg(_left="count_if(_side = 1)", _right="count_if(_side = 2)")
            .where("_left > 0 and _right = 0").select("id")
        ),
    ),
    "a common query of a common query": (
        ("with n as (select user, count(*) as n from clicks group by user), m(many) as (select n from n where n > 1) "
        "select many, count(*) as users from m group by many"),
        {},
        lambda s: (
            s["clicks"].group_by("user").agg(n="count(*)").where("n > 1").select("n").select(many="n")
            .group_by("many").agg(users="count(*)")
        ),
    ),
    "a subquery in from": (
        "select n, count(*) as users from (select user, count(*) as n from clicks group by user) as t group by t.n",
        {},
        lambda s: s["clicks"].group_by("user").agg(n="count(*)").group_by("n").agg(users="count(*)"),
    ),
    "tumbling windows": (
        ("select user, window.start as window_start, window.end as window_end, count(*) as n from clicks "
        "group by user, window(at, '1 minute')"),
        GRACE,
        lambda s: s["clicks"].group_by("user").window(hr.tumbling("1 minute", grace="30 seconds")).agg(n="count(*)"),
    ),
    "hopping windows with an offset, final": (
        ("select window(at, '1 hour', '10 minutes', '5 minutes').start as start, count(*) as n from clicks "
        "group by window(at, '1 hour', '10 minutes', '5 minutes')"),
        {**GRACE, "emit": "final"},
        lambda s: (
            s["clicks"].group_by()
            .window(hr.hopping("1 hour", "10 minutes", grace="30 seconds", offset="5 minutes"), emit="final")
            .agg(n="count(*)").select(start="window_start", n="n")
        ),
    ),
    "sessions": (
        ("select user, session_window.end as last, count(*) as n from clicks "
         "group by user, session_window(at, '5 minutes')"),
        GRACE,
        lambda s: (
            s["clicks"].group_by("user").window(hr.session("5 minutes", grace="30 seconds")).agg(n="count(*)")
            .select(user="user", last="window_end", n="n")
        ),
    ),
    "the first n": (
        ("select * from (select *, row_number() over (partition by buyer order by price desc, id) as place "
         "from orders) "
        "where place <= 3"),
        {},
        lambda s: s["orders"].group_by("buyer").top(3, "price desc, id asc", rank="place"),
    ),
    "the first n, their places unread": (
        ("select id, price from (select *, row_number() over "
         "(partition by buyer order by price desc nulls first) as place from orders) as t "
         "where 1 = t.place and price > 2"),
        {},
        lambda s: (
            s["orders"].group_by("buyer").top(1, "price desc nulls first").where("price > 2").select("id", "price")
        ),
    ),
    "order by and limit": (
        "select id, price from orders order by price desc, id limit 10",
        {},
        lambda s: s["orders"].select("id", "price").group_by().top(10, "price desc, id asc"),
    ),
    "order by an aggregate": (
        "select buyer from orders group by buyer order by sum(price) desc limit 2",
        {},
        lambda s: (
            s["orders"].group_by("buyer").agg(_having="sum(price)").select(buyer="buyer", _by="_having")
            .group_by().top(2, "_by desc").select("buyer")
        ),
    ),
    "two streams within a time": (
        ("select s.query, c.url from searches s left join clicks c on s.search_id = c.search_id "
        "and c.at between s.at - interval 10 seconds and s.at + interval 1 hour"),
        {},
        lambda s: (
            s["searches"].select("search_id", "query", "at")
            .join(s["clicks"].select("search_id", "url", "at"), on="search_id", within=("-10 seconds", "1 hour"),
                  how="left", suffix="_c")
            .select("query", "url")
        ),
    ),
    "windows over joined streams": (
        ("select s.query, window.start as start, count(c.url) as clicked from searches s, clicks c "
        "where s.search_id = c.search_id and c.at - s.at <= interval 1 hour and s.at <= c.at "
        "group by s.query, window(greatest(s.at, c.at), '1 minute')"),
        GRACE,
        lambda s: (
            s["searches"].select("search_id", "query", "at")
            .join(s["clicks"].select("search_id", "url", "at"), on="search_id", within=("0 seconds", "1 hour"),
                  grace="30 seconds", suffix="_c")
            .group_by("query").window(hr.tumbling("1 minute", grace="30 seconds")).agg(clicked="count(url)")
            .select(query="query", start="window_start", clicked="clicked")
        ),
    ),
    "two tables, their columns that nobody reads left out": (
        ("select o.id, u.name from orders o join users u on o.buyer = u.id and o.price > length(u.name) "
         "where u.city = 'Oslo' and o.price > 3"),
        {},
        lambda s: (
            s["orders"].where("price > 3").select("id", "buyer", "price")
            .join(s["users"].where("city = 'Oslo'").select("id", "name"), on={"buyer": "id"},
                  where="price > length(name)", suffix="_u")
            .select("id", "name")
        ),
    ),
    "joined by where": (
        "select name, price from users, orders where users.id = buyer and price > users.id",
        {},
        lambda s: (
            s["users"].select("id", "name")
            .join(s["orders"].select("id", "buyer", "price"), on={"id": "buyer"}, suffix="_orders")
            .where("price > id").select("name", "price")
        ),
    ),
    "using": (
        ("select id, name, n from users left join "
         "(select buyer as id, count(*) as n from orders group by buyer) using (id)"),
        {},
        lambda s: (
            s["users"].select("id", "name")
            .join(s["orders"].group_by("buyer").agg(n="count(*)").select(id="buyer", n="n"), on="id", how="left")
        ),
    ),
    "semi and anti joins": (
        ("select name from users u where id in (select buyer from orders where price > 3) "
         "and not exists (select 1 from orders o where o.buyer = u.id and o.price < length(u.city))"),
        {},
        lambda s: (
            s["users"]
            .join(s["orders"].where("price > 3").select("buyer"), on={"id": "buyer"}, how="semi")
            .join(s["orders"].select("buyer", "price"), on={"id": "buyer"}, how="anti", where="price < length(city)")
            .named("users_orders_join_by_id_2").select("name")
        ),
    ),
    "the value of each group": (
        "select id from orders o where price > (select avg(price) from orders where buyer = o.buyer)",
        {},
        lambda s: (
            s["orders"].select("id", "buyer", "price")
            .join(s["orders"].group_by("buyer").agg(_value="avg(price)"), on="buyer")
            .where("price > _value").select("id")
        ),
    ),
    "the value of all": (
        "select id, price / (select sum(price) from orders) as part from orders",
        {},
        lambda s: (
            s["orders"].with_columns(_one="1")
            .join(s["orders"].group_by().agg(_value="sum(price)").with_columns(_one="1"), on="_one", how="left")
            .select(id="id", part="price / _value")
        ),
    ),
}  # fmt: skip


def explained(make):
    app = hr.App("shop")
    make(app, declare(app)).to_view("v")
    return app.explain().data


@pytest.mark.parametrize("name", TWINS)
def test_a_query_and_its_twin_in_verbs_are_one_plan(name):
    text, options, verbs = TWINS[name]
    from_text = explained(lambda app, _: app.sql(text, **options))
    from_verbs = explained(lambda _, sources: verbs(sources))
    assert from_text == from_verbs


def test_a_source_is_one_step_however_many_queries_read_it(app):
    app.sql("select user from clicks").to_view("users")
    app.sql("select url, count(*) as n from clicks group by url").to_view("urls")
    assert [step["name"] for step in app.explain().data["steps"] if step["verb"] == "source"] == ["clicks"]


def test_a_common_query_that_is_read_twice_is_one_step(app):
    app.sql(
        "with n as (select user, count(*) as n from clicks group by user) "
        "select user from n where n > 3 union all select user from n where n < 2"
    ).to_view("v")
    assert [step["name"] for step in app.explain().data["steps"] if step["verb"] == "agg"] == ["clicks_agg_by_user"]


def test_steps_that_are_given_are_read_by_their_names(app):
    large = app.sql("select * from orders").where("price > 100").named("large")
    counts = app.sql("select buyer, count(*) as n from big group by buyer", big=large)
    counts.to_view("counts")
    assert app.explain().data["steps"][-1]["inputs"] == ["large"]


def test_a_given_name_comes_before_a_source(app):
    renamed = app.sql("select url as link from clicks")
    assert app.sql("select link from clicks", clicks=renamed).columns == ["link"]


def test_steps_of_one_derived_name_get_numbers_within_a_query(app):
    app.sql(
        "select user from clicks where url = 'a' group by user union all select user from clicks group by user"
    ).to_view("v")
    names = [step["name"] for step in app.explain().data["steps"] if step["verb"] == "agg"]
    assert names == ["clicks_agg_by_user", "clicks_agg_by_user_2"]


def test_queries_of_one_derived_name_are_told_apart_by_a_name(app):
    text = "select user, count(*) as n from clicks where url = '{}' group by user"
    app.sql(text.format("a")).to_view("a")
    with pytest.raises(hr.HeadraceError, match=r'app\.sql\(text, name="another"\)'):
        app.sql(text.format("b")).to_view("b")
    app.sql(text.format("b"), name="b").to_view("b")
    names = [step["name"] for step in app.explain().data["steps"] if step["verb"] == "agg"]
    assert names == ["clicks_agg_by_user", "b_clicks_agg_by_user"]


def test_every_example_of_the_table_means_in_a_query_what_it_means_in_a_verb():
    """What a query's parts are written as, on their way to the verbs, is compiled to the same."""
    differing = []
    for functions in FAMILIES.values():
        for text in (example for function in functions for example in function.examples):
            again = sql_text(parse(text, step="twice"))
            try:
                same = scalar(text, SCHEMA, step="s").sql == scalar(again, SCHEMA, step="s").sql
            except hr.HeadraceError:
                named = [aggregates({"x": each}, SCHEMA, pa.schema([]), step="s") for each in (text, again)]
                same = named[0].calls == named[1].calls
            if not same:
                differing.append((text, again))
    assert not differing


SIDES = (
    "(select id as number, buyer, price as cost from orders) o",
    "(select name, id as buyer, 2.0d as cost from users) u",
)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select * from {0} join (select name, buyer from {1}) u using (buyer)", "buyer number cost name"),
        ("select * from {0} right join {1} using (cost, buyer)", "cost buyer number name"),
        ("select * from {0} natural join (select name, 2.0d as cost, buyer from {1}) u", "buyer cost number name"),
        ("select u.* from (select number, buyer from {0}) o join {1} using (buyer)", "buyer name cost"),
        ("select o.* from {0} left join (select buyer from {1}) u using (buyer)", "buyer number cost"),
    ],
)
def test_the_columns_of_using_come_first_as_in_spark(text, columns):
    """A natural join has them in the order of its left side."""
    app = hr.App("shop")
    declare(app)
    assert app.sql(text.format(*SIDES)).columns == columns.split()
