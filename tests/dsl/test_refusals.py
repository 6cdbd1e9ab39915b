"""What cannot be is refused at the line that asks for it, with the condition, what it is, and the next move."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError

SHOP = "user string, price double, qty int, tags array<string>, prices map<string,int>, at timestamp"


def message(error):
    """Return an error's lines: `[CONDITION] what`, then detail and hint."""
    return str(error.value if hasattr(error, "value") else error)


def app():
    return hr.App("shop")


def shop():
    return app().stream("orders", SHOP, event_time="at")


UNKNOWN = {
    "select": (lambda s: s.select("usr"), "usr", "user"),
    "an expression": (lambda s: s.select(x="prise * 2"), "prise", "price"),
    "select … AS": (lambda s: s.select("prise * 2 AS x"), "prise", "price"),
    "with_columns": (lambda s: s.with_columns(x="qtty + 1"), "qtty", "qty"),
    "where": (lambda s: s.where("prise > 3"), "prise", "price"),
    "branch": (lambda s: s.branch(cheap="prise < 3"), "prise", "price"),
    "group_by": (lambda s: s.group_by("usr"), "usr", "user"),
    "group_by named": (lambda s: s.group_by(day="date_trunc('day', att)"), "att", "at"),
    "agg": (lambda s: s.group_by("user").agg(n="sum(prise)"), "prise", "price"),
    "drop": (lambda s: s.drop("usr"), "usr", "user"),
    "rename": (lambda s: s.rename(who="usr"), "usr", "user"),
    "explode": (lambda s: s.explode("tag", "t"), "tag", "tags"),
    "a topic's key": (lambda s: s.to_topic("out", key="usr"), "usr", "user"),
    "key": (lambda _: app().stream("more", SHOP, key="usr"), "usr", "user"),
    "event_time": (lambda _: app().stream("more", SHOP, event_time="att"), "att", "at"),
}


@pytest.mark.parametrize(("verb", "column", "nearest"), UNKNOWN.values(), ids=list(UNKNOWN))
def test_an_unknown_column_is_named_with_the_nearest(verb, column, nearest):
    with pytest.raises(HeadraceError) as error:
        verb(shop())
    assert f'has no column "{column}"' in message(error)
    assert message(error).startswith("[UNKNOWN_COLUMN] step ")
    assert "Its columns are: user, price, qty, tags, prices, at." in message(error)
    assert f'Did you mean "{nearest}"?' in message(error)


WINDOW = hr.tumbling("1 s", grace="0 s")
REFUSED = {
    "a condition that is none": (
        lambda s: s.where("price"),
        "[WRONG_TYPE] step \"orders_where\": the condition 'price' is double, not boolean",
        "Compare it with something, for example price is not null.",
    ),
    "an expression without a name": (
        lambda s: s.select("price * 2"),
        "[INVALID_EXPRESSION] step \"orders_select\": 'price * 2' is an expression, and its result has no name",
        'select(x="price * 2"), or select("price * 2 AS x")',
    ),
    "a key without a name": (
        lambda s: s.group_by("date_trunc('day', at)"),
        "is an expression, and its result has no name",
        "group_by(x=\"date_trunc('day', at)\")",
    ),
    "a sum of arrays": (lambda s: s.group_by().agg(n="sum(tags)"), "sum does not take (array<string>)", "sum(number)"),
    "a comparison": (lambda s: s.where("tags > 3"), "[WRONG_TYPE]", "Cast them to one type."),
    "a cast": (lambda s: s.select(x="cast(tags as int)"), "array<string> cannot be cast to int", ""),
    "an event time": (
        lambda _: app().stream("more", SHOP, event_time="user"),
        '[WRONG_TYPE] step "more": the column "user" is of type string and cannot be the event time',
        "It must be timestamp.",
    ),
    "a map as a key": (lambda s: s.group_by("prices"), "cannot be a key", "anything but a map"),
    "explode of a text": (lambda s: s.explode("user", "x"), "cannot be exploded", "an array or a map"),
    "explode of a map": (lambda s: s.explode("prices", "x"), "2 column(s), 1 named", 'as_=("key", "value")'),
    "a misspelt function": (
        lambda s: s.select(x="uper(user)"),
        '[UNKNOWN_FUNCTION] step "orders_select": there is no function "uper"',
        'Did you mean "upper"?',
    ),
    "an unknown function": (lambda s: s.select(x="frobnicate(price)"), "[UNKNOWN_FUNCTION]", "app.function(name, fn"),
    "the first way on": (lambda s: s.select(x="frobnicate(price)"), "frobnicate", ".map_batches(fn, schema)"),
    "the second way on": (lambda s: s.select(x="frobnicate(price)"), "frobnicate", "app.read(frame)"),
    "a function of Spark's": (
        lambda s: s.select(x="xpath(user, 'a')"),
        "[UNSUPPORTED_FUNCTION]",
        "app.function(name, fn, returns=…)",
    ),
    "an aggregate of Spark's": (
        lambda s: s.group_by().agg(x="histogram_numeric(price, 3)"),
        "[UNSUPPORTED_FUNCTION]",
        ".map_batches(fn, schema)",
    ),
    "chance": (lambda s: s.select(x="rand()"), "[NONDETERMINISTIC]", "a replay must give the same result"),
    "the clock": (lambda s: s.where("at < localtimestamp()"), "[NONDETERMINISTIC]", "Use the event time"),
    "an aggregate in where": (
        lambda s: s.where("sum(price) > 1"),
        "sum is an aggregate",
        "Aggregates are possible in .group_by(…).agg(…) only.",
    ),
    "a window function": (lambda s: s.select(x="row_number() over (order by at)"), "is a window function", ".top(…)"),
    "a subquery": (lambda s: s.select(x="(select 1)"), "is a subquery", "Use a join instead."),
    "broken syntax": (lambda s: s.where("price >"), "[INVALID_EXPRESSION]", "something is missing"),
    "no text": (lambda s: s.where(None), "None is no expression", 'For example "price * 0.9".'),
    "an ungrouped column": (
        lambda s: s.group_by("user").agg(x="price"),
        "[UNGROUPED_COLUMN]",
        "Say which one: max(price)",
    ),
    "a name twice": (
        lambda s: s.group_by("user").agg(user="count(*)"),
        'makes the column "user" twice',
        "Give one of them another name.",
    ),
    "names that differ in case": (
        lambda s: s.select("user", User="upper(user)"),
        'differ in case alone: "user", "User"',
        "Give one of them another name.",
    ),
    "such names in a schema": (
        lambda _: app().stream("more", "k string, K string"),
        'differ in case alone: "k", "K"',
        "Give one of them another name.",
    ),
    "a reserved name in a schema": (lambda _: app().stream("m", "_time timestamp"), '"_time" is reserved', ""),
    "a reserved name in select": (lambda s: s.select(_weight="1"), 'a column "_weight", a name that Headrace uses', ""),
    "two names for one column": (lambda s: s.rename(a="at", b="at"), 'gives the column "at" two names', "with_columns"),
    "a reserved name in rename": (lambda s: s.rename(_time="at"), 'a column "_time"', ""),
    "a reserved name in agg": (lambda s: s.group_by("user").agg(_offset="count(*)"), 'a column "_offset"', ""),
    "the window's own name": (
        lambda s: s.group_by("user").window(WINDOW).agg(window_start="count(*)"),
        'makes the column "window_start" twice',
        "Give one of them another name.",
    ),
    "grace that is none": (lambda _: hr.tumbling("1 minute", grace="soon"), "'soon' is not a grace", '"10 seconds"'),
    "grace below zero": (lambda _: hr.tumbling("1 minute", grace="-1 s"), "[INVALID_WINDOW]", 'Say "0 seconds"'),
    "no length": (lambda _: hr.tumbling("0 s", grace="0 s"), "a size and a hop above zero", '"10 minutes"'),
    "no hop": (lambda _: hr.hopping("1 m", "0 s", grace="0 s"), "a size and a hop above zero", '"10 minutes"'),
    "no step": (lambda _: hr.cumulating("1 h", "0 s", grace="0 s"), "a size and a step above zero", '"10 minutes"'),
    "a step that does not fit": (
        lambda _: hr.cumulating("1 h", "25 minutes", grace="0 s"),
        "[INVALID_WINDOW] a window of 1 hour cannot grow by 25 minutes",
        "a whole number of steps",
    ),
    "a row in too many windows": (
        lambda _: hr.hopping("1 day", "1 us", grace="0 s"),
        "[INVALID_WINDOW] each row would be in 86,400,000,000 windows",
        "hr.sliding",
    ),
    "a row in too many steps": (lambda _: hr.cumulating("1 day", "1 ms", grace="0 s"), "86,400,000 windows", "sliding"),
    "no gap": (
        lambda _: hr.session("0 s", grace="0 s"),
        "[INVALID_WINDOW] a session needs a gap above",
        '"30 minutes"',
    ),
    "a gap below zero": (lambda _: hr.session("-1 s", grace="0 s"), "a session needs a gap above zero", '"30 minutes"'),
    "a session's grace": (lambda _: hr.session("1 s", grace="-1 s"), "grace is below zero", 'Say "0 seconds"'),
    "sessions of a table": (
        lambda s: s.group_by("user").agg(n="count(*)").group_by("n").window(hr.session("1 s", grace="0 s")).agg(),
        "rows of its input are withdrawn, and a session cannot lose a row",
        'emit="final"',
    ),
    "a result of a window's bounds": (
        lambda s: s.group_by("user").window(WINDOW).agg(day="date_trunc('day', window_start)"),
        "day reads window_start, which the window adds to the result",
        ".agg(…).with_columns(day=\"date_trunc('day', window_start)\")",
    ),
    "a month of grace": (
        lambda _: hr.tumbling("1 h", grace="1 month"),
        "[INVALID_TIME] '1 month'",
        "numbers with a unit",
    ),
    "a zone": (
        lambda _: hr.tumbling("1 day", grace="0 s", timezone="Paris"),
        "'Paris' is not a known time zone",
        '"Europe/Paris"',
    ),
    "minutes of a calendar": (
        lambda _: hr.tumbling("10 minutes", grace="0 s", timezone="Europe/Paris"),
        "[INVALID_WINDOW] 10 minutes is no period of a calendar",
        "Leave timezone out",
    ),
    "months and weeks": (
        lambda _: hr.hopping("1 year", "1 week", grace="0 s"),
        "[INVALID_WINDOW] 1 year, 1 week and an offset of 0 seconds do not go together",
        "in months, or all in weeks",
    ),
    "a month by days": (lambda _: hr.cumulating("1 month", "1 day", grace="0 s"), "do not go together", "in months"),
    "no months": (lambda _: hr.tumbling("0 months", grace="0 s"), "a size and a hop above zero", '"10 minutes"'),
    "an emit": (
        lambda s: s.group_by().window(WINDOW, emit="end"),
        "emit='end' is not known",
        'emit="changes" or emit="final"',
    ),
    "a text as window": (lambda s: s.group_by().window("1 minute"), "is no window", 'hr.tumbling("1 minute"'),
    "late without windows": (
        lambda s: s.group_by("user").agg(n="count(*)").late,
        "has no late rows",
        "take .late right after .agg(…)",
    ),
    "out_of_order below zero": (lambda _: app().stream("m", SHOP, out_of_order="-3 s"), "is below zero", ""),
    "no shards": (lambda _: hr.App("m", shards=0), "shards=0 is not possible", "1 to 10000"),
    "too many shards": (lambda _: hr.App("m", shards=10**9), "shards=1000000000 is not possible", "1 to 10000"),
    "no partitions": (lambda _: app().stream("m", SHOP, partitions=0), "partitions=0", "above zero"),
    "on_error": (
        lambda _: app().stream("m", SHOP, on_error="x"),
        "on_error='x' is not known",
        '"dead_letter"',
    ),
    "a view's name": (lambda s: s.to_view("my view"), "'my view' is not allowed as the name of a view", '"my_view"'),
    "a topic's name": (lambda s: s.to_topic("../x"), "'../x' is not allowed as the name of a topic", 'Try "x"'),
    "a step's name": (lambda s: s.named("1x"), "'1x' is not allowed as the name of a step", "first is not a digit"),
    "an app's name": (lambda _: hr.App("my app"), "is not allowed as the name of an app", '"my_app"'),
    "a type": (lambda _: app().stream("m", "id bigit"), 'unknown type "bigit"', 'Did you mean "bigint"?'),
    "a sink": (lambda s: s.to(3), "3 cannot take rows", "write(epoch, rows)"),
    "a view twice": (
        lambda s: (s.to_view("v"), s.where("qty > 1").to_view("v")),
        'two steps write to the view "v"',
        "Give one of the views another name.",
    ),
    "a topic twice": (
        lambda s: (s.to_topic("v"), s.where("qty > 1").to_topic("v")),
        'two steps write to the topic "v"',
        ".union(…)",
    ),
    "state twice": (
        lambda s: (
            s.group_by("user").agg(n="count(*)").to_view("a"),
            s.where("qty > 1").group_by("user").agg(n="count(*)").to_view("b"),
        ),
        'two stateful steps are called "orders_agg_by_user"',
        '.named("another_name")',
    ),
    "a union of different columns": (
        lambda s: s.union(s.drop("qty")),
        "its inputs have different columns",
        ".select(…)",
    ),
    "a union with another app": (lambda s: s.union(shop()), "is no stream of this app", ""),
    "an app without an end": (lambda _: app().plan(), "sends its rows nowhere", ".to_view(name)"),
}


@pytest.mark.parametrize(("verb", "what", "hint"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_is_refused_where_it_is_said(verb, what, hint):
    with pytest.raises(HeadraceError) as error:
        verb(shop())
    assert what in message(error)
    assert hint in message(error)
