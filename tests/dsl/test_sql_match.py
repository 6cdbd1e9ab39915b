"""`match_recognize`: the plan of the verb `match`, and what is refused."""

from __future__ import annotations

import re

import pytest

import headrace as hr
from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.testing import Driver

LOGINS = "user string, ok boolean, country string, at timestamp"
QUERY = """
    select * from logins l match_recognize (
        partition by l.user order by at
        measures count(FAIL.*) as fails, last(success.country) as where_from, success.at as last_at, sum(1) + 1 as n
        one row per match after match skip to next row
        pattern (fail{3,} success | fail+?) within interval '10' minute
        define fail as not fail.ok, Success as ok and country <> prev(success.country)
    ) as m
"""


def logins_of(app):
    return app.stream("logins", LOGINS, event_time="at")


def test_a_query_is_the_plan_of_the_verb():
    by_verb, by_sql = hr.App("a"), hr.App("a")
    found = (
        logins_of(by_verb)
        .group_by("user")
        .match(
            "fail{3,} success | fail+?",
            within="10 minutes",
            define={"fail": "not ok", "success": "ok and country <> prev(country)"},
            after="next row",
        )
    )
    measures = {"fails": "count(fail)", "where_from": "last(success.country)", "last_at": "last(success.at)"}
    verb = found.agg(**measures, n="sum(1) + 1").node
    logins_of(by_sql)
    query = by_sql.sql(QUERY, name="found").node
    match = next(node for node in query.walk() if node.verb == "match")
    assert match.identity() == verb.identity()
    assert (match.schema, match.keys) == (verb.schema, verb.keys)


def test_where_and_windows_are_over_the_matches():
    """A window over `match_end`, which is the event time of the matches."""
    app = hr.App("a", shards=2)
    logins_of(app)
    app.sql(
        """
        select window.end as at, count(*) as n
        from (
            select match_end as at, m.fails
            from logins match_recognize (
                partition by user order by at measures count(*) as fails
                pattern (fail{2}) within interval 1 minute define fail as not ok
            ) m where m.fails > 1
        ) group by window(at, '10 seconds')
        """,
        name="counts",
        grace="0 seconds",
    ).to_view("counts")
    with Driver(app, shards=2) as driver:
        driver.send("logins", *({"user": "ann", "ok": False, "country": "", "at": n * 1000} for n in range(1, 13)))
        driver.finish()
        assert [row["n"] for row in driver.view("counts")] == [4, 2]


REFUSED = {
    "no end": ("within interval '10' minute", "", "for ever"),
    "another order": ("order by at", "order by country", "order by at"),
    "no order": ("order by at", "", "event time"),
    "descending": ("order by at", "order by at desc", "event time"),
    "all rows": ("one row per match", "all rows per match", "one row"),
    "to a symbol": ("to next row", "to first fail", "past the last row"),
    "no name": ("as fails", "", "has no name"),
    "twice": ("as where_from", "as fails", "two measures"),
    "running": ("last(success.country)", "running last(success.country)", "all its rows"),
    "another row": ("not fail.ok", "not success.ok", "rows of"),
    "an unknown column": ("not fail.ok", "not fail.okay", "okay"),
    "a number": ("sum(1) + 1", "match_number()", "match_number"),
    "a join": (") as m", ") as m join logins b on m.user = b.user", "one relation"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_kept_is_refused(case):
    old, new, message = REFUSED[case]
    app = hr.App("a")
    logins_of(app)
    with pytest.raises((UnsupportedQuery, InvalidQuery, hr.HeadraceError), match=re.escape(message)):
        app.sql(QUERY.replace(old, new, 1), name="found")
