"""The law on tables: after every epoch, each verb on a table gives what a batch over its current rows gives."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Deltas
from test_aggregates import EVERY, SCHEMA, batch, frame, same
from test_aggregates import rows as facts

import headrace as hr
from budget import examples
from headrace.kernels import upserts as by_columns
from headrace.kernels.groups import whole_numbers
from headrace.testing import Driver

USERS = "id int, city string, n int, tags array<string>, at timestamp"

upserts = st.fixed_dictionaries(
    {
        "id": st.integers(1, 4),
        "city": st.sampled_from(["a", "b", "", None]),
        "n": st.sampled_from([0, 1, 2, None]),
        "tags": st.sampled_from([None, [], ["x"], ["x", None]]),
        "at": st.integers(0, 9).map(lambda second: 1_767_225_600_000 + second * 1000),
    }
)
deletes = st.integers(1, 5).map(lambda key: {"id": key, "_deleted": True})
changes = st.lists(st.one_of(upserts, upserts, deletes), min_size=1, max_size=30)
cuts = st.lists(st.integers(0, 7), max_size=8)


def epochs(sent, sizes):
    """Cut what is sent into epochs of these sizes, the rest into one."""
    at = 0
    for size in sizes:
        yield sent[at : at + size]
        at += size
    yield sent[at:]


def send(driver, topic, rows):
    """Append rows and tombstones, each alone, in order."""
    for row in rows:
        driver.send(topic, row)


def current(sent):
    """The rows that are left when changes are applied one by one."""
    rows = {}
    for row in sent:
        rows.pop(row["id"], None)
        if not row.get("_deleted"):
            rows[row["id"]] = row
    return sorted(rows.values(), key=lambda row: row["id"])


def shown(rows):
    """Rows as the oracle writes them: without times, lists as they are."""
    return [{name: value for name, value in row.items() if name != "at"} for row in rows]


def by_city(rows):
    groups = defaultdict(list)
    for row in rows:
        groups[row["city"]].append(row["n"])
    made = []
    for city, every in groups.items():
        known = [n for n in every if n is not None]
        most, least = max(known, default=None), min(known, default=None)
        total = sum(known) if known else None
        made.append({"city": city, "c": len(every), "s": total, "lo": least, "hi": most, "d": len(set(known))})
    return made


def sums_of(rows):
    known = Counter(row["city"] for row in rows if row["n"] is not None)
    return [{"city": g["city"], "c": g["c"], "s": g["s"], "k": known[g["city"]]} for g in by_city(rows)]


def by_count(groups):
    made = Counter(group["c"] for group in groups)
    return [{"c": count, "cities": cities} for count, cities in made.items()]


def unordered(rows):
    return sorted(repr(sorted(row.items())) for row in rows)


def app_of(schema=USERS):
    app = hr.App("tables")
    table = app.table("users", schema, key="id", event_time="at", partitions=2)
    table.to_view("users")
    table.where("n > 0").select("id", "tags", twice="n * 2").to_view("some")
    table.select("city", "n").to_view("bag")
    table.with_columns(id="id % 2").to_view("changed_key")
    cities = table.group_by("city").agg(c="count(*)", s="sum(n)", lo="min(n)", hi="max(n)", d="count(distinct n)")
    cities.to_view("cities")
    table.group_by("city").agg(c="count(*)", s="sum(n)", k="count(n)").named("sums").to_view("sums")
    cities.group_by("c").agg(cities="count(*)").named("counts").to_view("counts")
    table.to_topic("copy")
    table.changes().to_topic("changes", key="id")
    return app, table


@settings(max_examples=examples(7), deadline=None)
@given(sent=changes, sizes=cuts, way=st.sampled_from(("columns", "sql", "nested")))
def test_each_verb_is_the_batch_after_every_epoch(sent, sizes, way):
    """Counts, sums, and tables without nested columns are kept by columns, tables where no key has two records."""
    plain = way != "nested"
    app, table = app_of(USERS.replace("array<string>", "string") if plain else USERS)
    sent = [{**row, "tags": str(row["tags"])} if plain and "tags" in row else row for row in sent]
    with pytest.MonkeyPatch.context() as patched:
        if way == "sql":
            patched.setattr(by_columns, "covers", lambda _: False)
            patched.setattr(whole_numbers, "covers", lambda _: False)
        _check_each_verb(app, table, sent, sizes)


def _check_each_verb(app, table, sent, sizes):
    deltas = Deltas()
    table.to(deltas)
    with Driver(app, shards=2) as driver:
        seen = []
        for part in epochs(sent, sizes):
            send(driver, "users", part)
            driver.step()
            seen += part
            rows = current(seen)
            assert shown(driver.view("users")) == shown(rows)
            some = [{"id": r["id"], "tags": r["tags"], "twice": r["n"] * 2} for r in rows if r["n"]]
            assert driver.view("some") == some
            assert unordered(driver.view("bag")) == unordered({"city": r["city"], "n": r["n"]} for r in rows)
            odd = shown({**r, "id": r["id"] % 2} for r in rows)
            assert unordered(shown(driver.view("changed_key"))) == unordered(odd)
            assert unordered(driver.view("cities")) == unordered(by_city(rows))
            assert unordered(driver.view("counts")) == unordered(by_count(by_city(rows)))
            assert unordered(driver.view("sums")) == unordered(sums_of(rows))
            assert sum(1 for weight in deltas.sum.values() if weight) == len(rows)


@settings(max_examples=examples(4), deadline=None)
@given(sent=changes, sizes=cuts)
def test_a_changelog_read_back_is_the_same_table_and_changes_apply(tmp_path_factory, sent, sizes):
    """The copy, read by another app; and the table made by applying what happened, in order, with nothing amiss."""
    storage = tmp_path_factory.mktemp("copy")
    with Driver(app_of()[0], storage=storage, shards=2) as driver:
        for part in epochs(sent, sizes):
            send(driver, "users", part)
            driver.step()
        users = driver.view("users")
        happened = driver.read("changes")
    assert applied(happened) == {row["id"]: row for row in users}
    other = tmp_path_factory.mktemp("again")
    shutil.copytree(storage / "log", other / "log")
    again = hr.App("again")
    again.table("copy", USERS, key="id").to_view("copied")
    with Driver(again, storage=other, shards=3) as driver:
        driver.run()
        assert driver.view("copied") == users


def applied(happened):
    """Apply changes to nothing; each must fit what is there, and the two halves of an update stand together."""
    rows, before = {}, None
    for change in happened:
        kind = change.pop("_change_type")
        key = change["id"]
        assert (before is not None) == (kind == "update_postimage")
        if kind in ("delete", "update_preimage"):
            assert rows.pop(key) == change
        else:
            assert key not in rows
            rows[key] = change
        before = change if kind == "update_preimage" else None
        if kind == "update_postimage":
            assert rows[key] is change
    assert before is None
    return rows


@settings(max_examples=examples(7), deadline=None)
@given(sent=st.lists(upserts, min_size=1, max_size=30), sizes=cuts)
def test_the_latest_of_a_stream_is_the_last_by_event_time_whatever_the_cut(sent, sizes):
    """Of equal times the later arrival; a row without a key is a dead letter."""
    app = hr.App("latest")
    table = app.stream("t", USERS, event_time="at").where("n is null or n < 2").latest("city")
    table.to_view("latest")
    table.group_by("n").agg(c="count(*)").to_view("counts")
    deltas = Deltas()
    table.to(deltas)
    with Driver(app, shards=2) as driver:
        seen = []
        for part in epochs(sent, sizes):
            send(driver, "t", part)
            driver.step()
            seen += part
            rows = {}
            for row in seen:
                if row["n"] == 2 or row["city"] is None:
                    continue
                if row["city"] not in rows or row["at"] >= rows[row["city"]]["at"]:
                    rows[row["city"]] = row
            assert unordered(shown(driver.view("latest"))) == unordered(shown(rows.values()))
            counts = Counter(row["n"] for row in rows.values())
            assert unordered(driver.view("counts")) == unordered({"n": n, "c": c} for n, c in counts.items())


@pytest.mark.spark
@settings(max_examples=examples(3), deadline=None)
@given(
    sent=st.lists(st.tuples(st.integers(0, 5), st.one_of(facts, facts, st.none())), min_size=1, max_size=25), sizes=cuts
)
def test_every_aggregate_of_a_table_is_that_of_its_rows(spark, sent, sizes):
    """Against Spark SQL, with updates and deletes; keys, nulls and groups that come and go."""
    app = hr.App("law")
    made = app.table("t", f"id int, {SCHEMA}", key="id", event_time="at").group_by("k").agg(**EVERY)
    made.to_view("out")
    whole = app.table("t2", f"id int, {SCHEMA}", key="id").group_by().agg(**EVERY)
    whole.to_view("whole")
    rows = [{"id": key, **({"_deleted": True} if row is None else row)} for key, row in sent]
    with Driver(app, shards=2) as driver:
        for part in epochs(rows, sizes):
            send(driver, "t", part)
            send(driver, "t2", part)
            driver.step()
        ours, all_of_it = driver.view("out"), driver.view("whole")
    left = [{name: value for name, value in row.items() if name != "id"} for row in current(rows)]
    frame(spark, left)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in EVERY.items())
    same(ours, batch(spark, f"SELECT k, {columns} FROM t GROUP BY k"), ["k"])
    same(all_of_it, batch(spark, f"SELECT {columns} FROM t HAVING count(*) > 0"), ["n"])
