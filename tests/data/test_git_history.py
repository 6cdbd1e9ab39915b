"""The history of a git repository: 59 % of its commits arrive out of order, the worst 829 days late."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replaying import DAY, batch, counted, cuts, late, replay, same, send, shown, tumbling_end

import headrace as hr
from budget import examples
from headrace.testing import Driver

pytestmark = pytest.mark.spark

COMMITS = "seq bigint, author string, n_changes bigint, at timestamp"
CHANGES = "nr bigint, seq bigint, op string, path string, folder string, new_blob string, author string, at timestamp"
WEEKLY = {"n": "count(*)", "changes": "sum(n_changes)", "authors": "count(distinct author)", "first": "min(seq)"}
BY_FOLDER = {
    "n": "count(*)",
    "added": "count_if(op = 'A')",
    "files": "count(distinct path)",
    "last": "max(nr)",
    "newest": "max_by(path, nr)",
}
few = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))


def sql(named):
    return ", ".join(f"{text} AS {name}" for name, text in named.items())


def windowed(keys, named, window, source):
    grouped = ", ".join([*keys, "w"])
    kept = "".join(f"{key}, " for key in keys)
    return (
        f"SELECT {kept}w.start AS window_start, w.end AS window_end, {sql(named)} "
        f"FROM (SELECT *, window(at, {window}) AS w FROM {source}) GROUP BY {grouped}"
    )


def commits_app(window, emit, *, out_of_order=None):
    app = hr.App("git")
    commits = app.stream("commits", COMMITS, event_time="at", out_of_order=out_of_order)
    table = commits.group_by().window(window, emit=emit).agg(**WEEKLY).named("weekly")
    table.to_view("weekly")
    table.late.to_topic("late")
    return app


@pytest.fixture(scope="module")
def by_week(spark, commits):
    return batch(spark, "commits", commits, windowed([], WEEKLY, "'7 days'", "commits"))


@pytest.fixture(scope="module")
def by_folder(spark, changes):
    query = windowed(["folder"], BY_FOLDER, "'28 days', '7 days'", "changes")
    return batch(spark, "changes", changes, query)


@few
@given(ends=cuts(13_532), emit=st.sampled_from(["changes", "final"]))
def test_weeks_equal_the_batch_however_the_history_is_cut(commits, by_week, ends, emit):
    with Driver(commits_app(hr.tumbling("7 days", grace="1000 days"), emit), shards=2) as driver:
        replay(driver, "commits", commits, ends)
        same(driver.view("weekly"), by_week)
        assert driver.late("weekly") == []


@pytest.mark.parametrize(
    ("emit", "ends"), [("changes", [4000]), pytest.param("final", [1, 9000], marks=pytest.mark.prove)]
)
def test_weeks_equal_the_batch_on_spark(spark, commits, by_week, emit, ends):  # noqa: ARG001 -- the session runs it
    app = commits_app(hr.tumbling("7 days", grace="0 days"), emit, out_of_order="1000 days")
    with Driver(app, shards=2, carrier="spark") as driver:
        replay(driver, "commits", commits, ends)
        same(driver.view("weekly"), by_week)
        assert driver.late("weekly") == []


def folders_app(emit):
    app = hr.App("folders")
    changes = app.stream("changes", CHANGES, event_time="at", out_of_order="500 days")
    grouped = changes.group_by("folder").window(hr.hopping("28 days", "7 days", grace="500 days"), emit=emit)
    grouped.agg(**BY_FOLDER).to_view("folders")
    return app


@settings(few, max_examples=examples(2))
@given(ends=cuts(65_690, most=3), emit=st.sampled_from(["changes", "final"]))
def test_hopping_months_by_folder_equal_the_batch_however_the_history_is_cut(changes, by_folder, ends, emit):
    with Driver(folders_app(emit), shards=2) as driver:
        replay(driver, "changes", changes, ends)
        same(driver.view("folders"), by_folder)


def test_hopping_months_by_folder_equal_the_batch_on_spark(spark, changes, by_folder):  # noqa: ARG001 -- the session runs it
    with Driver(folders_app("changes"), shards=2, carrier="spark") as driver:
        replay(driver, "changes", changes, [30_000])
        same(driver.view("folders"), by_folder)


def check_late(driver, commits, ends):
    replay(driver, "commits", commits, ends)
    gone = late(commits, ends, out_of_order=5 * DAY, grace=2 * DAY, end_of_last_window=tumbling_end(7 * DAY))
    assert shown(driver.view("weekly")) == counted(commits, gone, 7 * DAY)
    assert driver.late("weekly") == commits.filter(gone).to_pylist()
    assert driver.read("late") == driver.late("weekly")
    assert sum(row["n"] for row in driver.view("weekly")) + len(driver.late("weekly")) == commits.num_rows
    return gone


@few
@given(ends=cuts(13_532, most=8), emit=st.sampled_from(["changes", "final"]))
def test_every_commit_is_counted_or_late_as_the_rules_say(commits, ends, emit):
    window = hr.tumbling("7 days", grace="2 days")
    with Driver(commits_app(window, emit, out_of_order="5 days"), shards=2) as driver:
        check_late(driver, commits, ends)


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_every_commit_is_counted_or_late_on_both_carriers(drive, spark, commits, emit):
    driver = drive(commits_app(hr.tumbling("7 days", grace="2 days"), emit, out_of_order="5 days"))
    gone = check_late(driver, commits, [5000, 9000])
    assert gone.sum() > 20
    taken = commits.filter(pc.invert(gone))
    same(driver.view("weekly"), batch(spark, "taken", taken, windowed([], WEEKLY, "'7 days'", "taken")))


def test_replaying_all_changes_gives_the_final_state(drive, changes, final_state):
    """An oracle that is no query: what git itself says is there after the last commit."""
    app = hr.App("replay")
    files = app.stream("changes", CHANGES, event_time="at").group_by("path")
    last = files.agg(blob="max_by(new_blob, nr)", op="max_by(op, nr)").named("files").where("op <> 'D'")
    last.select("path", "blob").to_view("files")
    last.with_columns(whole="'all'").group_by("whole").agg(n="count(*)", any_="max(path)").named("count").to_view("n")
    driver = drive(app)
    replay(driver, "changes", changes, [20_000, 20_001])
    assert {row["path"]: row["blob"] for row in driver.view("files")} == final_state
    assert driver.view("n") == [{"whole": "all", "n": len(final_state), "any_": max(final_state)}]


def tree_app():
    """The table of current files, from changes whose deletes are tombstones, and aggregates over its folders."""
    app = hr.App("tree")
    files = app.table("files", TREE, key="path", event_time="at", partitions=2)
    files.select("path", "new_blob").to_view("files")
    by_folder = files.group_by("folder").agg(**TREE_FACTS).named("folders")
    by_folder.to_view("folders")
    by_folder.group_by("n").agg(folders="count(*)").named("sizes").to_view("sizes")
    return app


TREE = "path string, nr bigint, folder string, new_blob string, author string, at timestamp"
TREE_FACTS = {"n": "count(*)", "authors": "count(distinct author)", "last": "max(nr)", "newest": "max_by(path, nr)"}


@pytest.fixture(scope="module")
def upserts(changes):
    """All changes of files as records of a table: a deleted file is a tombstone."""
    names = ["path", "nr", "folder", "new_blob", "author", "at"]
    return changes.select(names).append_column("_deleted", pc.equal(changes.column("op"), "D"))


def tree(changes, end):
    """Which changes say what is there after the first `end`, in plain Python."""
    last = {}
    columns = (changes.column(name).to_pylist() for name in ("path", "op"))
    for nr, (path, op) in enumerate(zip(*columns, strict=True)):
        if nr == end:
            break
        last.pop(path, None)
        if op != "D":
            last[path] = nr
    return changes.take(pa.array(sorted(last.values()), pa.int64()))


def sizes(folders):
    return sorted(Counter(row["n"] for row in folders).items())


@settings(few, max_examples=examples(2))
@given(ends=cuts(65_690, most=2))
def test_the_table_of_files_equals_the_batch_after_every_epoch(spark, changes, upserts, final_state, ends):
    with Driver(tree_app(), shards=2) as driver:
        for first, last in zip([0, *ends], [*ends, changes.num_rows], strict=True):
            if last > first:
                send(driver, "files", upserts.slice(first, last - first))
            driver.step()
            now = tree(changes, last)
            assert driver.view("files") == sorted(now.select(["path", "new_blob"]).to_pylist(), key=lambda r: r["path"])
            folders = batch(spark, "tree", now, f"SELECT folder, {sql(TREE_FACTS)} FROM tree GROUP BY folder")
            same(driver.view("folders"), folders)
            assert [(row["n"], row["folders"]) for row in driver.view("sizes")] == sizes(folders)
        assert {row["path"]: row["new_blob"] for row in driver.view("files")} == final_state


def test_the_table_of_files_is_the_final_state_on_both_carriers(drive, upserts, final_state):
    """What git itself says is there after the last commit."""
    driver = drive(tree_app())
    replay(driver, "files", upserts, [30_000, 30_001])
    assert {row["path"]: row["new_blob"] for row in driver.view("files")} == final_state
    assert sum(row["n"] for row in driver.view("folders")) == len(final_state)
