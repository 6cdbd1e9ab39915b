"""What a query cannot do: the error names the part of the text, the reason, and the next move."""

from __future__ import annotations

import pytest

import headrace as hr

REFUSED = [
    # names
    ("select usr from clicks", "UNKNOWN_COLUMN", ['has no column "usr"', 'Did you mean "user"?']),
    ("select c.usr from clicks c", "UNKNOWN_COLUMN", ['"c.usr"', 'Did you mean "c.user"?']),
    ("select clicks.user from clicks c", "UNKNOWN_COLUMN", ['"clicks.user"']),
    ("select user from click", "UNKNOWN_RELATION", ['"click"', 'Did you mean "clicks"?', "app.sql(text, click="]),
    (
        "select user from searches s join clicks c on s.search_id = c.search_id and c.at = s.at",
        "INVALID_QUERY",
        ['"user" may be any of s.user, c.user'],
    ),
    ("select u.id from users u, orders u where u.id = u.id", "INVALID_QUERY", ['two relations are called "u"']),
    (
        "select u.id from users u join (orders o join users u on o.id = u.id) on u.id = o.id",
        "INVALID_QUERY",
        ['two relations are called "u"'],
    ),
    ("select o.id from (orders o join users u using (id)) as t", "UNKNOWN_COLUMN", ['"o.id"']),
    ("select a from (orders o join users u using (id)) as t(a, b)", "INVALID_QUERY", ["names 2 columns of"]),
    ("select u.id from (users u join orders o on u.id > o.id)", "UNSUPPORTED_QUERY", ["no equality connects"]),
    ("select u.id from (users u join nosuch o on u.id = o.id)", "UNKNOWN_RELATION", ['"nosuch"']),
    ("select user, url as user from clicks", "INVALID_QUERY", ['two columns "user"']),
    ("select x.* from clicks c", "INVALID_QUERY", ['no relation "x"']),
    ("select upper(url) from clicks", "INVALID_QUERY", ['"upper(url)" has no name', "upper(url) as x"]),
    ("select a from (select user from clicks) as t(a, b)", "INVALID_QUERY", ["names 2 columns of 1"]),
    ("select user from clicks group by 2", "INVALID_QUERY", ["position 2 is none of the 1 columns"]),
    ("select o.id from orders o join users using (id, city)", "INVALID_QUERY", ['"city" is not one column']),
    # syntax
    ("select user frm clicks where", "INVALID_QUERY", ["line 1, character 17", "^"]),
    ("select user\nfrom clicks\nwhere (url = 'a'", "INVALID_QUERY", ["line 3"]),
    ("select user from clicks; select url from clicks", "INVALID_QUERY", ["one query is expected, not 2"]),
    ("", "INVALID_QUERY", ["is no query"]),
    ("insert into clicks select 1", "UNSUPPORTED_QUERY", ["only queries are supported", ".to_view"]),
    ("select 1 as one", "UNSUPPORTED_QUERY", ["without from"]),
    # expressions: as in the verbs
    ("select nosuch(url) as x from clicks", "UNKNOWN_FUNCTION", ["nosuch"]),
    ("select user, url from clicks group by user", "UNGROUPED_COLUMN", ["url"]),
    ("select url + 1 as x, sum(1 as y from clicks", "INVALID_QUERY", ["cannot read"]),
    ("select user from clicks where url", "WRONG_TYPE", ["not boolean"]),
    # values
    ("values (1), (2, 3)", "INVALID_QUERY", ["rows of different lengths"]),
    ("select * from (values (1)) as t(a, b)", "INVALID_QUERY", ["names 2 columns of 1"]),
    ("values (1), (1 / 0)", "INVALID_QUERY", ["cannot be computed", "division by zero"]),
    ("values (null)", "WRONG_TYPE", ["cast(null as string)"]),
    ("values (url)", "UNKNOWN_COLUMN", ['"url"']),
    ("select user from clicks where user in (values ('a'))", "UNSUPPORTED_FUNCTION", ["is not supported"]),
    # order
    ("select user from clicks order by user", "UNSUPPORTED_QUERY", ["have no order"]),
    ("select user from clicks limit 3", "UNSUPPORTED_QUERY", ["without order by"]),
    ("select user from clicks order by user limit 3 offset 2", "UNSUPPORTED_QUERY", ["offset 2"]),
    ("select user from clicks order by user limit 1 + 1", "UNSUPPORTED_QUERY", ["whole number"]),
    ("select user from clicks sort by user", "UNSUPPORTED_QUERY", ["sort by"]),
    (
        "select id from (select id, row_number() over (order by id) as rn from users limit 2) where rn <= 3",
        "UNSUPPORTED_QUERY",
        ["together with distinct, order by or limit", "around the other"],
    ),
    ("select distinct city from users order by id limit 2", "INVALID_QUERY", ['reads "id", which select distinct']),
    # using
    ("select o.* from users u left join orders o using (id)", "UNSUPPORTED_QUERY", ['"o.id"', "one column", "Say on"]),
    ("select u.id from users u full join orders o using (id)", "UNSUPPORTED_QUERY", ['"u.id"', "for both sides"]),
    # subqueries
    (
        "select id from users u where exists (select 1 from orders where buyer = u.id group by price)",
        "UNSUPPORTED_QUERY",
        ['"u.id"', "groups, limits or combines rows"],
    ),
    (
        "select id from users u where exists (select 1 from orders o left join clicks c on c.url = u.name)",
        "UNSUPPORTED_QUERY",
        ["cannot read the outer query"],
    ),
    # groups
    ("select id from users having id > 1", "INVALID_QUERY", ["neither keys nor aggregates", "said in where"]),
    ("select count(*) as n from users group by 1", "INVALID_QUERY", ['"count(*)" is an aggregate of groups']),
    ("select id, max(city) as name, name as n from users group by id", "UNGROUPED_COLUMN", ['"name" is read outside']),
    ("select id, max(name) as name from users group by id having users.name > 'a'", "UNGROUPED_COLUMN", ['"name"']),
    # windows
    ("select count(*) as n from clicks group by window(at, '1 minute')", "INVALID_QUERY", ["a grace", 'grace="30']),
    ("select count(*) as n from clicks group by window(url, '1 minute')", "UNSUPPORTED_QUERY", ["event time is at"]),
    ("select count(*) as n from orders group by window(at, '1 day')", "UNSUPPORTED_QUERY", ["date_trunc('hour', at)"]),
    ("select window, count(*) as n from clicks group by window(at, '1 day')", "UNSUPPORTED_QUERY", ["window.start"]),
    ("select count(*) as n from clicks group by window(at, '1 month')", "UNSUPPORTED_QUERY", ["no constant length"]),
    (
        "select count(*) as n from clicks group by window(at, '1 day'), session_window(at, '1 hour')",
        "UNSUPPORTED_QUERY",
        ["a group has one window"],
    ),
    ("select user, row_number() over (order by url) as n from clicks", "UNSUPPORTED_QUERY", ["where rn <= 10"]),
    (
        "select id from (select id, row_number() over (order by name, id) as rn from users) where rn <= 2 or id > 3",
        "UNSUPPORTED_QUERY",
        ["Ask for the first ones", "where rn <= 10 and …", "no other test of rn limits them"],
    ),
    ("select id from users order by id limit 0", "UNSUPPORTED_QUERY", ["no row is asked for"]),
    (
        "select * from (select user, ntile(4) over (order by at) as n from clicks) where n < 3",
        "UNSUPPORTED_QUERY",
        ["ntile() would change"],
    ),
    (
        "select user, sum(1) over (order by at rows between 1 preceding and 1 following) as n from clicks",
        "UNSUPPORTED_QUERY",
        ["this frame is not kept", "range between interval"],
    ),
    (
        "select user, count(*) over (partition by user order by at rows 1 preceding) as n from clicks group by user",
        "UNSUPPORTED_QUERY",
        ["a window together with group", "Write the one around the other"],
    ),
    (
        "select lag(url) ignore nulls over (order by at) as n from clicks",
        "UNSUPPORTED_QUERY",
        ["ignore nulls is possible in first_value"],
    ),
    ("select user, dense_rank() over (order by at) as n from clicks", "UNSUPPORTED_QUERY", ["where rn <= 10"]),
    (
        "select * from (select user, sum(1) over (partition by user order by at) as n from clicks) where n < 3",
        "UNSUPPORTED_QUERY",
        ["without a frame", "rows between unbounded preceding and current row"],
    ),
    (
        "select * from (select user, row_number() over (order by at desc) as n from clicks) where n > 3",
        "UNSUPPORTED_QUERY",
        ["in the order of their event time", "Say order by at"],
    ),
    (
        "select * from (select user, row_number() over (partition by user) as n from clicks) where n < 3",
        "UNSUPPORTED_QUERY",
        ["in the order of their event time"],
    ),
    # joins
    ("select o.id from orders o, users u", "UNSUPPORTED_QUERY", ['"users as u"', "each row would match all of them"]),
    ("select o.id from orders o join users u on o.price < u.id", "UNSUPPORTED_QUERY", ["an equality"]),
    (
        "select query from searches s where exists (select 1 from clicks c where c.user = s.user and c.at > s.at)",
        "UNSUPPORTED_QUERY",
        ["a stream withdraws none", "on both sides", "as_table()"],
    ),
    ("select c.url from clicks c join users u on c.user = u.name", "UNSUPPORTED_QUERY", ["for system_time as of"]),
    (
        "select c.url from clicks c join users for system_time as of c.user u on c.user = u.name",
        "UNSUPPORTED_QUERY",
        ["the event time of the stream's rows"],
    ),
    ("select u.id from users u join lateral (select 1) l", "UNSUPPORTED_QUERY", ["lateral"]),
    # subqueries
    ("select url from clicks where user in (select name from users)", "UNSUPPORTED_QUERY", ["a stream withdraws none"]),
    (
        "select id from orders where (buyer, price) not in (select id, id from users)",
        "UNSUPPORTED_QUERY",
        ["one null among several values", "not exists"],
    ),
    (
        "select id from orders o where price > 3 or exists (select 1 from users u where u.id < o.id)",
        "UNSUPPORTED_QUERY",
        ["by equalities only", "joined by and"],
    ),
    (
        "select id from orders where (select max(id) from users) in (select id from users)",
        "UNSUPPORTED_QUERY",
        ["on both sides of in"],
    ),
    ("select id from orders where price = (select price from orders)", "UNSUPPORTED_QUERY", ["must return one row"]),
    ("select id from orders where price > all (select price from orders)", "UNSUPPORTED_QUERY", ["a subquery"]),
    (
        "select id from orders o where price > (select avg(p.price) from orders p where p.buyer < o.buyer)",
        "UNSUPPORTED_QUERY",
        ["no equality connects", "Add an equality"],
    ),
    ("select id from orders where (id, buyer) in (select id from users)", "UNSUPPORTED_QUERY", ["2 values"]),
    # others
    ("select user from clicks union all select user, url from clicks", "INVALID_QUERY", ["1 columns with 2"]),
    ("select user from clicks union all select at from clicks", "INVALID_PLAN", ["different columns"]),
    ("select user from clicks intersect select user, url from searches", "UNKNOWN_COLUMN", ["url"]),
    ("select user from clicks except select user, query from searches", "INVALID_QUERY", ["except of 1 columns"]),
    ("select user, grouping(url) as g from clicks group by rollup(user)", "INVALID_QUERY", ["none of the keys"]),
    ("select grouping(user, url) as g from clicks group by rollup(user, url)", "INVALID_QUERY", ["takes one key"]),
    ("select user, grouping(user) as g from clicks group by user", "UNSUPPORTED_FUNCTION", ["grouping sets, rollup"]),
    (
        "select count(*) as n from clicks group by rollup(window(at, '1 minute'))",
        "UNSUPPORTED_QUERY",
        ["in every grouping", "rollup(a, b)"],
    ),
    (
        "select count(*) as n from orders group by cube(id, buyer, price, at, id + 1, id + 2, id + 3, id + 4)",
        "UNSUPPORTED_QUERY",
        ["256 groupings are too many"],
    ),
    ("select * except (link) from clicks", "UNKNOWN_COLUMN", ["link", "url"]),
    ("select * except (id, name, city) from users", "INVALID_QUERY", ["leaves no column"]),
    ("select * except (id) from users u join orders o on u.id = o.buyer", "INVALID_QUERY", ["any of several"]),
    ("select first(price) as x from orders group by buyer", "UNSUPPORTED_FUNCTION", ["max_by(value, time)"]),
    ("select buyer, totl(price) as x from orders group by buyer", "UNKNOWN_FUNCTION", ["totl"]),
    ("select * from users pivot (count(*) for nam in ('a'))", "UNKNOWN_COLUMN", ["nam", "name"]),
    ("select * from users pivot (upper(city) for name in ('a'))", "UNSUPPORTED_QUERY", ["upper", "aggregates only"]),
    ("select * from users pivot (count(*), max(city) for name in ('a'))", "UNSUPPORTED_QUERY", ["needs a name"]),
    ("select * from users pivot (count(*) for (name, city) in (('a', 'b')))", "UNSUPPORTED_QUERY", ["('a', 'b') as"]),
    ("select * from users pivot (count(*) for (name, city) in ('a'))", "INVALID_QUERY", ["1 value(s) for 2"]),
    ("select * from users pivot (count(*) for name in ('a', 'b' as a))", "INVALID_QUERY", ['two columns "a"']),
    ("select * from users unpivot (v for k in (id, name))", "UNSUPPORTED_QUERY", ["string", "bigint"]),
    ("select * from users unpivot (v for k in (nam, city))", "UNKNOWN_COLUMN", ["nam", "name"]),
    ("select * from users unpivot ((v, w) for k in ((id, name)))", "UNSUPPORTED_QUERY", ["unpivot (value for"]),
    ("select json_tuple(name, 'a') from users", "UNSUPPORTED_QUERY", ["json_tuple(name", "posexplode"]),
    ("select stack(3, id, name) from users", "UNSUPPORTED_QUERY", ["stack(3, id, name)", "at least as many"]),
    ("select stack(id, id, name) from users", "UNSUPPORTED_QUERY", ["makes n rows"]),
    ("select stack(2, id, name) from users", "UNSUPPORTED_QUERY", ["bigint", "string", "Cast both"]),
    ("select explode(array(id), 1) from users", "UNSUPPORTED_QUERY", ["of one value"]),
    ("select id from users lateral view posexplode(array(id)) as p", "INVALID_QUERY", ["makes 2 column(s), 1 named"]),
    ("select id from users lateral view explode(array(id)) as a, b", "INVALID_QUERY", ["makes 1 column(s), 2 named"]),
    ("select id from users semi join lateral explode(array(id)) as e(x)", "UNSUPPORTED_QUERY", ["after all joins"]),
    ("select inline(array(id)) from users", "UNSUPPORTED_QUERY", ["an array of structs"]),
    ("select id, w from users lateral view explode(name) as w", "WRONG_TYPE", ["an array or a map"]),
    ("select id, w from users u lateral view explode(split(name, ' ')) u as w", "INVALID_QUERY", ['called "u"']),
    ("select id from users lateral view explode(split(name, ' ')) as id", "INVALID_QUERY", ['"id" may be any of']),
    (
        "select explode(split(name, ' ')) as a, explode(split(city, ' ')) as b from users",
        "UNSUPPORTED_QUERY",
        ["one column", "lateral view"],
    ),
    (
        "select explode(collect_list(price)) as price from orders group by buyer",
        "UNSUPPORTED_QUERY",
        ["grouped", "lateral view"],
    ),
    (
        "select w from users u, lateral explode(split(name, ' ')) as e(w) join orders o on o.buyer = u.id",
        "UNSUPPORTED_QUERY",
        ["after all joins"],
    ),
    (
        "select w from users u join lateral explode(split(name, ' ')) as e(w) on e.w <> ''",
        "UNSUPPORTED_QUERY",
        ["without a condition", "where"],
    ),
    ("select /*+ broadcast(c) */ user from clicks c", "UNSUPPORTED_QUERY", ["broadcast"]),
    ("select user from clicks tablesample (10 percent)", "UNSUPPORTED_QUERY", ["another one each time"]),
    ("with recursive t as (select id from users) select id from t", "UNSUPPORTED_QUERY", ["a recursive query"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "condition", "parts"), REFUSED, ids=[text[:90] for text, _, _ in REFUSED])
def test_what_cannot_be_is_refused_with_its_part_and_the_next_move(app, text, condition, parts):
    with pytest.raises(hr.HeadraceError) as no:
        app.sql(text)
    assert no.value.condition == condition, str(no.value)
    for part in parts:
        assert part in str(no.value)


def test_a_topic_that_is_declared_twice_is_asked_for(app):
    again = app.stream("clicks", "user string")
    with pytest.raises(hr.HeadraceError, match="any of the 2 sources"):
        app.sql("select user from clicks")
    assert app.sql("select * from clicks", clicks=again).columns == ["user"]


def test_a_grace_that_nothing_waits_for_is_refused(app):
    with pytest.raises(hr.HeadraceError, match="has no effect here"):
        app.sql("select user from clicks", grace="1 hour")


@pytest.mark.parametrize("text", ["select user from clicks", "select user, count(*) as n from clicks group by user"])
def test_final_results_of_a_query_without_windows_are_refused(app, text):
    """Else its results would be corrected, although only final ones were asked for."""
    with pytest.raises(hr.HeadraceError, match="emit='final' has no effect here"):
        app.sql(text, emit="final")


def test_a_step_of_another_app_is_refused(app):
    other = hr.App("other").stream("clicks", "user string")
    with pytest.raises(hr.HeadraceError, match="of this app"):
        app.sql("select user from c", c=other)
    with pytest.raises(hr.HeadraceError, match="of this app"):
        app.sql("select user from c", c="clicks")
