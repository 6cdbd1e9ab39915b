"""What a join cannot be is refused where it is said; and what it is where it can be."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError


class Sides:
    """Two streams and two tables of one app."""

    def __init__(self):
        self.app = hr.App("sides")
        self.orders = self.app.stream("orders", "id int, buyer int, n int, x double, at timestamp", event_time="at")
        self.clicks = self.app.stream("clicks", "id int, url string, at timestamp", event_time="at")
        self.users = self.app.table("users", "id int, city string, n int, s string", key="id")
        self.items = self.app.table("items", "id int, n bigint, d decimal(9,2), tags array<string>", key="id")
        self.app.function("half", lambda n: n, returns="int", takes="int")


LOW = "has its low end above its high end"
REFUSED = {
    "no key": (lambda s: s.users.join(s.items, on=()), "on=() names no columns", 'on={"buyer": "id"}'),
    "a key that is no text": (lambda s: s.users.join(s.items, on=3), "on=3 names no columns", 'on="id"'),
    "an unknown key": (lambda s: s.users.join(s.items, on="cty"), 'has no column "cty"', 'Did you mean "city"?'),
    "a key of the left alone": (lambda s: s.users.join(s.items, on="city"), 'the right side of the join" has no', ""),
    "a key twice": (lambda s: s.users.join(s.items, on=("id", "id")), '"id" twice', ""),
    "types without equality": (
        lambda s: s.users.join(s.items, on={"s": "id"}),
        'column "id" is of type int and cannot be joined with s',
        "",
    ),
    "numbers of other kinds": (
        lambda s: s.users.join(s.items, on={"n": "d"}),
        '"d" is of type decimal(9,2)',
        "It must be int.",
    ),
    "how": (lambda s: s.users.join(s.items, on="id", how="outer"), "how='outer' is not known", "inner, left"),
    "how of a look-up": (
        lambda s: s.orders.join(s.users, on="id", how="full"),
        "how='full' is not possible between these sides",
        "Possible here: inner, left.",
    ),
    "a table with a stream": (
        lambda s: s.users.join(s.orders, on="id"),
        "a table cannot be joined with a stream",
        "stream.join(table, …)",
    ),
    "no time between streams": (
        lambda s: s.orders.join(s.clicks, on="id"),
        "a join of two streams needs the argument within",
        'within="1 hour"',
    ),
    "an interval that is none": (lambda s: s.orders.join(s.clicks, on="id", within=3), "within=3 is no interval", ""),
    "an interval turned round": (lambda s: s.orders.join(s.clicks, on="id", within=("1 s", "-1 s")), LOW, ""),
    "a length below zero": (lambda s: s.orders.join(s.clicks, on="id", within="-1 s"), LOW, ""),
    "as_of between streams": (
        lambda s: s.orders.join(s.clicks, on="id", within="1 s", as_of="at"),
        "as_of='at' has no effect here",
        "Leave as_of out.",
    ),
    "within and a table": (
        lambda s: s.orders.join(s.users, on="id", within="1 s"),
        "within='1 s' has no effect here",
        "Leave within out.",
    ),
    "grace of a look-up": (
        lambda s: s.orders.join(s.users, on="id", grace="1 s"),
        "grace='1 s' has no effect here",
        "Leave grace out.",
    ),
    "as_of without grace": (
        lambda s: s.orders.join(s.users, on="id", as_of="at"),
        "needs a grace",
        'grace="0 seconds"',
    ),
    "grace below zero": (
        lambda s: s.orders.join(s.clicks, on="id", within="1 s", grace="-1 s"),
        "grace='-1 s' is below zero",
        "",
    ),
    "a condition on what is not there": (
        lambda s: s.users.join(s.items, on="id", where="n > m"),
        'has no column "m"',
        "n_right",
    ),
    "a condition that is none": (lambda s: s.users.join(s.items, on="id", where="n"), "is int, not boolean", ""),
    "a condition that changes": (
        lambda s: s.users.join(s.items, on="id", where="rand() < 0.5"),
        "rand",
        "",
    ),
    "a function of the user's": (
        lambda s: s.users.join(s.items, on="id", where="half(n) > 1"),
        "cannot be called in the condition of a join",
        "as a column of its side",
    ),
    "columns of one name": (
        lambda s: s.users.with_columns(n_right="1").join(s.items, on="id"),
        'makes the column "n_right" twice',
        "",
    ),
    "another app's table": (lambda s: s.users.join(Sides().items, on="id"), "this app", ""),
    "the key of a full join on nulls": (
        lambda s: s.users.group_by("n").agg(a="count(*)").join(
            s.orders.group_by("n").agg(b="count(*)"), on="n", how="full"
        ).to_topic("out"),
        "rows of both sides may have the same nulls in it",
        '.where("n is not null")',
    ),
    "the key of a full join with a condition": (
        lambda s: s.users.join(s.items, on="id", how="full", where="city > ''").to_topic("out"),
        "rows of both sides that match none, because of where, may have the same one",
        ".rename(other_id=",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "what", "hint"), REFUSED.values(), ids=list(REFUSED))
def test_what_a_join_cannot_be_is_refused_where_it_is_said(verb, what, hint):
    with pytest.raises(HeadraceError) as error:
        verb(Sides())
    assert what in str(error.value)
    assert hint in str(error.value)


def test_columns_of_one_name_get_a_suffix_and_a_shared_key_the_wider_type():
    s = Sides()
    joined = s.users.join(s.items.rename(rid="id"), on="n", suffix="_2")
    assert joined.columns == ["id", "city", "n", "s", "rid", "d", "tags"]
    assert str(joined.schema.field("n").type) == "int64"
    assert s.users.join(s.items, on="id", suffix="_2").columns == ["id", "city", "n", "s", "n_2", "d", "tags"]
    assert s.users.join(s.items, on={"n": "id"}, how="anti").columns == ["id", "city", "n", "s"]
