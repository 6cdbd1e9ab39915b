"""The law on lookups: each row of the stream meets what a replay, one change after the other, says is there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

LEFT = "id int, k int, g string, at timestamp"
RIGHT = "k int, g string, n int, since timestamp"
FIRST = 1_767_225_600_000

keys = st.integers(1, 3)
groups = st.sampled_from(["a", "b", "", None])
times = st.integers(0, 9)
asks = st.tuples(st.just("l"), st.one_of(st.none(), keys), groups, times)
upserts = st.tuples(st.just("r"), keys, groups, st.sampled_from([0, 1, 2, None]), times)
deletes = st.tuples(st.just("d"), keys, times)
parts = st.lists(st.lists(st.one_of(asks, asks, upserts, upserts, deletes), max_size=12), min_size=1, max_size=5)


def send(driver, part, first):
    stream, table = [], []
    for nr, (kind, key, *more) in enumerate(part, first):
        time = FIRST + more[-1] * 1000
        if kind == "l":
            stream.append({"id": nr, "k": key, "g": more[0], "at": time})
        elif kind == "r":
            table.append({"k": key, "g": more[0], "n": more[1], "since": time})
        else:
            table.append({"k": key, "since": time, "_deleted": True})
    driver.send("l", *stream)
    driver.send("r", *table)


class Replayed:
    """The table's rows by key, and, of this epoch, what each row was from when on."""

    def __init__(self):
        self.rows = {}

    def epoch(self, part):
        """Return the rows that are there at each second of an epoch; the last are kept."""
        versions = {key: [(-1, row)] for key, row in self.rows.items()}
        for kind, key, *more in part:
            if kind == "l":
                continue
            before = versions.setdefault(key, [(-1, None)])
            row = (key, *more) if kind == "r" else None
            if row != before[-1][1]:  # else it changes nothing
                before.append((max(more[-1], before[-1][0]), row))
        at = {
            second: [row for every in versions.values() if (row := [row for time, row in every if time <= second][-1])]
            for second in range(10)
        }
        self.rows = {key: every[-1][1] for key, every in versions.items() if every[-1][1]}
        return at


def expected(part, first, there, meets, how):
    made = []
    for nr, (kind, key, *more) in enumerate(part, first):
        if kind == "l":
            found = [row for row in there[more[-1]] if meets((key, more[0]), row)]
            made += [(nr, *row[:3]) for row in found] or ([(nr, None, None, None)] if how == "left" else [])
    return sorted(made, key=repr)


def app_of(*kinds, how):
    app = hr.App("law", shards=2)
    stream = app.stream("l", LEFT, event_time="at")
    table = app.table("r", RIGHT, key="k", event_time="since")
    if "key" in kinds:
        stream.join(table, on="k", how=how, where="n > 0 or g is null").named("key").to_topic("key")
    if "other" in kinds:
        stream.join(table, on="g", how=how).named("other").to_topic("other")
    if "bag" in kinds:
        stream.join(table.select("g", "n"), on="g", how=how).named("bag").to_topic("bag")
    return app


def shown(rows, *names):
    return sorted(((row["id"], *(row[name] for name in names)) for row in rows), key=repr)


def by_key(asked, row):
    return asked[0] == row[0] and ((row[2] or 0) > 0 or asked[1] is None)


def by_group(asked, row):
    return asked[1] is not None and asked[1] == row[1]


@settings(max_examples=12)
@given(cut=parts, how=st.sampled_from(["inner", "left"]))
def test_a_lookup_is_its_replay(cut, how):
    table, nr = Replayed(), 0
    with Driver(app_of("key", "other", how=how)) as driver:
        for part in cut:
            send(driver, part, nr)
            driver.step()
            there = table.epoch(part)
            ours = [row[::2] for row in shown(driver.read("key"), "k", "n")]
            theirs = [(row[0], row[3]) for row in expected(part, nr, there, by_key, how)]
            assert ours == sorted(theirs, key=repr)
            ours = shown(driver.read("other"), "k_right", "g", "n")
            theirs = expected(part, nr, there, by_group, how)
            asked = {at: more[0] for at, (_, _, *more) in enumerate(part, nr)}
            assert ours == sorted(((at, key, asked[at], n) for at, key, _, n in theirs), key=repr)
            nr += len(part)


@settings(max_examples=6)
@given(cut=parts, how=st.sampled_from(["inner", "left"]))
def test_rows_without_a_key_are_those_of_the_table_between_epochs(cut, how):
    """A bag has no changes of a row, so inside an epoch only times that go forward say what is there."""
    table, nr = Replayed(), 0
    with Driver(app_of("bag", how=how)) as driver:
        for part in cut:
            changes = [each for each in part if each[0] != "l"]
            asked = [each for each in part if each[0] == "l"]
            send(driver, changes, nr)
            driver.step()
            table.epoch(changes)
            send(driver, asked, nr)
            driver.step()
            ours = [(row["id"], row["n"]) for row in driver.read("bag")]
            theirs = [(row[0], row[3]) for row in expected(asked, nr, table.epoch([]), by_group, how)]
            assert sorted(ours, key=repr) == sorted(theirs, key=repr)
            nr += len(part)
