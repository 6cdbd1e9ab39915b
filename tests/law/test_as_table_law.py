"""The law on growing tables: after every epoch they are the rows of the stream that are not too old, however cut."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.testing import Driver, check_deltas

SCHEMA = "k string, v int, at timestamp"
START = 1_767_225_600_000
EMPTY = Counter()

rows = st.tuples(st.sampled_from(["a", "b", "é", None]), st.integers(0, 3), st.integers(0, 30))
epochs = st.lists(st.tuples(st.lists(rows, max_size=6), st.lists(rows, max_size=4)), min_size=1, max_size=6)
keeps = st.sampled_from([None, 0, 3, 10])


def sent(row):
    return {"k": row[0], "v": row[1], "at": START + row[2] * 1000}


class Kept:
    """The rows of one stream that are in its table: those that were in time, and are not too old."""

    def __init__(self, driver, step, keep):
        self.driver, self.step, self.keep = driver, step, keep
        self.rows, self.late = Counter(), Counter()

    def epoch(self, arrived):
        """Take what arrives in the epoch that comes."""
        moment = None if self.keep is None else self.driver.watermark(self.step)
        first = -1 if moment is None else moment.timestamp() - START / 1000 - self.keep
        self.late.update(row for row in arrived if row[2] < first)
        self.rows.update(row for row in arrived)
        self.rows = Counter({row: n for row, n in self.rows.items() if row[2] >= first})


@settings(max_examples=examples(12))
@given(parts=epochs, keep=st.tuples(keeps, keeps), how=st.sampled_from(["inner", "left", "right", "full", "anti"]))
@example(parts=[([("a", 1, 0), ("a", 1, 0)], [("b", 2, 0), ("b", 2, 0)])], keep=(None, None), how="full")
def test_growing_tables_are_joined_and_counted_as_in_sql(parts, keep, how):
    """Pairs whatever their times, withdrawn with a row that leaves; counts and tops of them follow."""
    app = hr.App("law", shards=2)
    texts = [None if seconds is None else f"{seconds} seconds" for seconds in keep]
    left, right = (
        app.stream(name, SCHEMA, event_time="at", out_of_order="2 seconds", partitions=2).as_table(keep=text)
        for name, text in zip("lr", texts, strict=True)
    )
    joined = left.join(right.select("k", w="v"), on="k", how=how).named("pairs")
    counted = joined.group_by("k").agg(n="count(*)", most="max(v)").named("counts")
    best = left.group_by("k").top(1, "v desc", ties="rank").named("best")
    outputs = {name: check_deltas(step) for name, step in (("pairs", joined), ("counts", counted), ("best", best))}
    left.to_view("left_now")
    if keep[0] is not None:
        left.late.to_topic("too_late")
    with Driver(app, shards=2) as driver:
        kept = [Kept(driver, f"{name}_as_table", seconds) for name, seconds in zip("lr", keep, strict=True)]
        late = EMPTY
        for arrived in parts:
            for name, part in zip("lr", arrived, strict=True):
                for nr, row in enumerate(part):
                    driver.send(name, sent(row), partition=nr % 2)
            for table, part in zip(kept, arrived, strict=True):
                table.epoch(part)
            driver.step()
            assert Counter((row["k"], row["v"], second(row)) for row in driver.view("left_now")) == kept[0].rows
            if keep[0] is not None:
                late = late + Counter((row["k"], row["v"], second(row)) for row in driver.read("too_late"))
                assert late == kept[0].late
            expected = batch(kept[0].rows, kept[1].rows, how)
            assert of(outputs["pairs"]) == expected
            assert of(outputs["counts"]) == counts(expected)
            assert of(outputs["best"]) == firsts(kept[0].rows)
        driver.run()
        before = driver.view("left_now")
        driver.finish()
        assert driver.view("left_now") == before


def second(row):
    return round(row["at"].timestamp()) - START // 1000


def of(deltas):
    """The rows that the deltas add up to, times as seconds."""
    rows = ({**row, "at": row["at"] and second(row)} if "at" in row else row for row in deltas.rows)
    return Counter(tuple(row.values()) for row in rows)


def batch(left, right, how):
    """Return the join of two bags of rows (k, v, second), of the right side k and v."""
    made = Counter()
    for row, n in left.items():
        matches = [(other[1], m) for other, m in right.items() if row[0] is not None and other[0] == row[0]]
        if how == "anti":
            made[row] += n if not matches else 0
            continue
        for value, m in matches:
            made[(*row, value)] += n * m
        if not matches and how in ("left", "full"):
            made[(*row, None)] += n
    for row, m in right.items():
        if how in ("right", "full") and (row[0] is None or all(other[0] != row[0] for other in left)):
            made[row[0], None, None, row[1]] += m
    return +made


def counts(joined):
    by_key = {}
    for row, n in joined.items():
        count, most = by_key.get(row[0], (0, row[1]))
        by_key[row[0]] = count + n, max((v for v in (most, row[1]) if v is not None), default=None)
    return Counter((key, *values) for key, values in by_key.items())


def firsts(table):
    most = {}
    for key, value, _ in table:
        most[key] = max(most.get(key, value), value)
    return Counter({row: n for row, n in table.items() if row[1] == most[row[0]]})
