"""The law on `match`: what comes out is what a search through the rows of each key finds, however the input is cut."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.testing import Driver, check_deltas

SCHEMA = "id int, k string, v int, x double, at timestamp"
START = 1_767_225_600_000
DEFINE = {"lo": "v < 1", "same": "v = prev(v)", "up": "up.v > prev(v, 2, -1)", "hi": "v > 1"}
MEASURES = {
    "n": "count(*)",
    "los": "count(lo)",
    "ups": "count(up.v)",
    "total": "sum(x)",
    "first": "first(v)",
    "last": "last(up.id)",
    "mine": "lo.v",
    "many": "count(distinct hi.v) + max(v)",
    "ids": "collect_list(id) filter (where x is not null)",
    "mid": "percentile(any.v, 0.5)",
    "long": "match_end > match_start",
}
OF = {"los": "lo", "ups": "up", "last": "up", "mine": "lo", "many": "hi", "mid": "any"}
"""The symbols that measures read: not every pattern has them."""


def one(symbol):
    """Return a matcher of one row: rows and a place to the places behind it, the preferred first, with symbols."""

    def match(met, at):
        if at < len(met) and symbol in met[at]:
            yield at + 1, (symbol,)

    return match


def then(*parts):
    def match(met, at):
        if not parts:
            yield at, ()
            return
        for middle, first in parts[0](met, at):
            for end, rest in then(*parts[1:])(met, middle):
                yield end, first + rest

    return match


def either(*parts):
    return lambda met, at: (found for part in parts for found in part(met, at))


def times(part, least, most, *, reluctant=False):
    def match(met, at):
        more = then(part, times(part, max(least - 1, 0), most - 1, reluctant=reluctant)) if most else either()
        stop = [] if least else [(at, ())]
        found = (each for each in more(met, at) if each[0] > at)
        yield from (*stop, *found) if reluctant else (*found, *stop)

    return match


MANY = 99
PATTERNS = {
    "lo+ hi": then(times(one("lo"), 1, MANY), one("hi")),
    "any any": then(one("any"), one("any")),
    "lo any*? hi": then(one("lo"), times(one("any"), 0, MANY, reluctant=True), one("hi")),
    "lo (up | same)* hi?": then(one("lo"), times(either(one("up"), one("same")), 0, MANY), times(one("hi"), 0, 1)),
    "(up{2} | up any | same){1,2}": times(
        either(times(one("up"), 2, 2), then(one("up"), one("any")), one("same")), 1, 2
    ),
    "any{2,}": times(one("any"), 2, MANY),
}

contents = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([0.1, 1e16, -1e16, 1.5, None]),
    st.integers(0, 12),
)
epochs = st.lists(st.lists(contents, max_size=6), min_size=1, max_size=6)


def nulls_first(value):
    return (0,) if value is None else (1, value)


def met_by(own, place):
    """Return the symbols that the row at a place meets."""
    v, before = own[place]["v"], own[place - 1]["v"] if place else None
    earlier = own[place - 2]["v"] if place > 1 else -1
    met = {"any"}
    met |= {"lo"} if v is not None and v < 1 else set()
    met |= {"hi"} if v is not None and v > 1 else set()
    met |= {"same"} if v is not None and v == before else set()
    return met | ({"up"} if None not in (v, earlier) and v > earlier else set())


def batch(rows, pattern, within, after):
    """Return the matches in the rows of each key, in the order of time and then of the whole row."""
    keys = defaultdict(list)
    for row in rows:
        keys[row["k"]].append(row)
    found = []
    for own in keys.values():
        own.sort(key=lambda row: tuple(nulls_first(row[name]) for name in ("at", "id", "k", "v", "x")))
        met = [met_by(own, place) for place in range(len(own))]
        start = 0
        while start < len(own):
            last = own[start]["at"] + within * 1000
            inside = sum(row["at"] <= last for row in own[start:])
            end, symbols = next(PATTERNS[pattern](met[start : start + inside], 0), (0, ()))
            if end:
                found.append(measured(own[start : start + end], symbols))
            start += end if end and after == "past last row" else 1
    return found


def measured(rows, symbols):
    of = {name: [row for row, met in zip(rows, symbols, strict=True) if met == name] for name in set(symbols)}
    lo, up, hi, every = (of.get(name, []) for name in ("lo", "up", "hi", "any"))
    values = [row["v"] for row in rows if row["v"] is not None]
    doubles = [row["x"] for row in rows if row["x"] is not None]
    middle = sorted(row["v"] for row in every if row["v"] is not None)
    half = (len(middle) - 1) / 2
    return {
        "k": rows[0]["k"],
        "match_start": rows[0]["at"],
        "match_end": rows[-1]["at"],
        "n": len(rows),
        "los": len(lo),
        "ups": len(up),
        "total": math.fsum(doubles) if doubles else None,
        "first": rows[0]["v"],
        "last": up[-1]["id"] if up else None,
        "mine": lo[-1]["v"] if lo else None,
        "many": len({row["v"] for row in hi}) + max(values) if values else None,
        "ids": sorted(row["id"] for row in rows if row["x"] is not None),
        "mid": (middle[math.floor(half)] + middle[math.ceil(half)]) / 2 if middle else None,
        "long": rows[-1]["at"] > rows[0]["at"],
    }


def shown(rows):
    """Rows as a bag, times as milliseconds."""
    return Counter(
        repr({name: _plain(value) for name, value in row.items() if name not in ("_weight", "_time")}) for row in rows
    )


def _plain(value):
    return round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value


def sent(nr, row):
    return dict(zip(("id", "k", "v", "x", "at"), (nr, *row[:3], START + row[3] * 1000), strict=True))


@settings(max_examples=examples(12))
@given(
    parts=epochs,
    name=st.sampled_from(sorted(PATTERNS)),
    within=st.sampled_from([0, 3, 60]),
    after=st.sampled_from(["past last row", "next row"]),
    same=st.booleans(),
    restart=st.booleans(),
)
def test_matches_are_those_of_a_search(parts, name, within, after, same, restart):
    """Rows out of order, late ones, equal ones (`same`), of one time, with nulls; cut anywhere."""
    app = hr.App("law", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at", out_of_order="3 seconds", partitions=2)
    symbols = set(re.findall(r"[a-z]+", name))
    define = {symbol: condition for symbol, condition in DEFINE.items() if symbol in symbols}
    search = rows.group_by("k").match(name, within=f"{within} seconds", define=define, after=after)
    measures = {each: text for each, text in MEASURES.items() if OF.get(each, name) in (*symbols, name)}
    matches = search.agg(**measures).named("matches")
    matches.late.to_view("late")
    output, came, late = check_deltas(matches), [], []

    def expected(before=math.inf):
        return shown(
            {column: match[column] for column in match if column in matches.columns}
            for match in batch(came, name, within, after)
            if match["match_start"] + within * 1000 < before
        )

    with Driver(app, shards=2) as driver:
        for number, part in enumerate(parts):
            moment = driver.watermark("matches")
            watermark = -1 if moment is None else round(moment.timestamp() * 1000)
            for nr, each in enumerate(part):
                row = sent(7 if same else number * 10 + nr, each)
                driver.send("t", row, partition=nr % 2)
                (late if row["at"] < watermark else came).append(row)
            driver.step()
            over = expected(watermark)
            assert over <= shown(output.rows), "what no row can change any more has come out"
            assert shown(driver.view("late")) == shown(late)
            if restart:
                driver.restart()
        driver.finish()
        assert shown(output.rows) == expected()
