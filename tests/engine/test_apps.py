"""Whole apps: started on Spark, looked at from outside, stopped, started again, and moved between carriers."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import HeadraceError, NotRunning, StorageBusy
from headrace.base.time import SystemClock
from headrace.testing import Driver

ROWS = "k string, v int, at timestamp"


def at(ms):
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def app_of(storage, **options):
    """An app with a stateless topic, two views that must always agree, windows and late rows."""
    app = hr.App("apps", storage=storage, shards=2, **options)
    rows = app.stream("t", ROWS, event_time="at", partitions=2)
    rows.with_columns(twice="v * 2").to_topic("plain", key="k")
    rows.group_by("k").agg(n="count(*)", total="sum(v)").to_view("by_key")
    rows.group_by().agg(n="count(*)", total="sum(v)").named("whole").to_view("whole")
    windows = rows.group_by("k").window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(n="count(*)").named("w")
    windows.to_topic("windows")
    windows.late.to_topic("late")
    return app


def rows_of(first, last):
    return [{"k": "abc"[i % 3], "v": i % 7, "at": i * 10} for i in range(first, last)]


def append(storage, rows):
    """Append half of the rows to each partition."""
    topic = hr.Log(storage / "log").topic("t")
    for partition in (0, 1):
        topic.append(rows[partition::2], partition=partition)


def totals(app):
    by_key, (whole,) = app.view("by_key").to_pylist(), app.view("whole").to_pylist()
    assert sum(row["n"] for row in by_key) == whole["n"]
    assert sum(row["total"] for row in by_key) == whole["total"]
    return whole["n"]


LOOK = """
import sys
import headrace as hr
from headrace.base.time import SystemClock
sys.path.insert(0, sys.argv[2])
from test_apps import app_of, totals
from pathlib import Path

app, seen = app_of(Path(sys.argv[1])), []
print("ready", flush=True)
while not Path(sys.argv[1] + ".done").exists():
    rows = {name: app.view(name).to_pylist() for name in ("by_key", "whole")}
    seen.append(sum(row["n"] for row in app.view("by_key").to_pylist()))
    SystemClock().sleep(0.01)  # the app needs the processors, too
print(*sorted(set(seen)))
"""


@pytest.mark.spark
def test_an_app_runs_stops_and_goes_on_while_others_look(spark, tmp_path):
    storage = tmp_path / "storage"
    app = app_of(storage)
    with hr.Log(storage / "log") as log:
        log.create_topic("t", ROWS, event_time="at", partitions=2)
    append(storage, rows_of(0, 300))  # while a partition is empty the other's times alone say what is late
    with app.start(spark) as running:
        with pytest.raises(StorageBusy):
            app_of(storage).start(spark)
        looking = subprocess.Popen(
            [sys.executable, "-c", LOOK, storage, str(__file__).rpartition("/")[0]], stdout=subprocess.PIPE, text=True
        )
        assert looking.stdout.readline() == "ready\n"
        sizes = [0]
        for part in range(4):
            if part:
                append(storage, rows_of(part * 300, part * 300 + 300))
            running.await_caught_up(timeout=300)
            sizes.append(totals(app))
        (tmp_path / "storage.done").touch()
        seen = [int(number) for number in looking.communicate(timeout=300)[0].split()]
        assert sizes == [0, 300, 600, 900, 1200]
        assert not [size for size in seen if size % 150], "never half an append, so never half an epoch"
        status = running.status()
    assert_status(status, running=True)
    assert_status(app.status(), running=False)
    assert running.status()["running"] is False
    running.stop()
    with pytest.raises(NotRunning):
        running.await_caught_up()
    append(storage, [*rows_of(1200, 1500), {"k": "a", "v": 0, "at": 5}, {"k": "a"}])
    with app_of(storage).start(spark) as again:
        again.await_caught_up(timeout=300)
        assert totals(app) == 1501
        after = again.status()
    assert after["epoch"] > status["epoch"]
    assert after["steps"]["w"]["late"] == 1
    assert after["sources"]["t"]["dead"] == 1
    log = hr.Log(storage / "log")
    assert sum(log.topic("plain").end_offsets().values()) == 1501
    assert sum(log.topic("late").end_offsets().values()) == 1


def assert_status(status, *, running):
    assert status["app"] == "apps"
    assert status["running"] is running
    assert status["lag"] == 0
    assert status["sources"]["t"] == {
        "rows": 1200,
        "lag": 0,
        "dead": 0,
        "lost": 0,
        "watermark": status["sources"]["t"]["watermark"],
    }
    assert at(11_900) < status["sources"]["t"]["watermark"] <= at(11_990)
    step = status["steps"]["t_agg_by_k"]
    assert (step["late"], step["partly_late"], step["state_rows"]) == (0, 0, 3)
    assert step["watermark"] == status["sources"]["t"]["watermark"]
    assert status["steps"]["w"]["late"] == 0
    assert status["steps"]["w"]["state_rows"] == 3, "one open window for each key"
    assert status["sinks"]["topic:plain"]["rows"] == 1200
    json.dumps(status, default=str)


@pytest.mark.spark
def test_an_app_moves_between_the_driver_and_spark(spark, tmp_path):
    storage = tmp_path / "storage"

    def drive(rows):
        with Driver(app_of(storage), storage=storage) as driver:
            for partition in (0, 1):
                driver.send("t", *rows[partition::2], partition=partition)
            driver.run()

    drive(rows_of(0, 300))
    append(storage, rows_of(300, 600))
    with app_of(storage).start(spark) as running:
        running.await_caught_up(timeout=300)
    assert totals(app_of(storage)) == 600
    drive(rows_of(600, 900))
    append(storage, rows_of(900, 1000))
    with app_of(storage).start(spark) as running:
        running.await_caught_up(timeout=300)
    assert totals(app_of(storage)) == 1000
    log = hr.Log(storage / "log")
    for name, count in {"plain": 1000, "late": 0}.items():
        assert sum(log.topic(name).end_offsets().values()) == count
    windows = [
        row
        for p, end in log.topic("windows").end_offsets().items()
        for row in log.topic("windows").read(p, 0, end).to_pylist()
    ]
    assert sum(row["n"] for row in windows) == 900
    assert len({(row["k"], row["window_start"]) for row in windows}) == len(windows) == 27, "each window once"


@pytest.mark.spark
def test_a_source_of_sparks_is_read_on_after_a_restart(spark, tmp_path):
    """Every row once: its numbers are there without a gap and without a double."""

    def app():
        made = hr.App("rates", storage=tmp_path / "storage", shards=2)
        rates = made.read(
            "rate-micro-batch",
            "timestamp timestamp, value bigint",
            event_time="timestamp",
            rowsPerBatch=10,
            numPartitions=2,
        )
        rates.group_by().agg(
            n="count(*)", least="min(value)", most="max(value)", kinds="count(distinct value)"
        ).to_view("n")
        return made

    reached = 0
    for _ in range(2):
        with app().start(spark) as running:
            for _ in range(600):
                running._carrier.check()  # noqa: SLF001 -- what ended the app, at once
                rows = app().view("n").to_pylist()
                if rows and rows[0]["n"] >= reached + 20:
                    break
                SystemClock().sleep(0.05)
            began = SystemClock().monotonic()
            running.stop()
            assert SystemClock().monotonic() - began < 15, "it stops though rows never end"
        (row,) = app().view("n").to_pylist()
        assert row == {"n": row["n"], "least": 0, "most": row["n"] - 1, "kinds": row["n"]}
        assert row["n"] >= reached + 20
        reached = row["n"]


@pytest.mark.prove
@pytest.mark.spark
def test_a_streaming_frame_is_a_source_and_goes_on_after_a_restart(spark, tmp_path):
    """What Spark has computed comes in: files that appear in a folder, with a function that Headrace lacks."""
    folder = tmp_path / "in"
    folder.mkdir()

    def app():
        frame = spark.readStream.schema("k string, v int").json(str(folder)).selectExpr("soundex(k) AS k", "v")
        made = hr.App("frames", storage=tmp_path / "storage", shards=2)
        made.read(frame).group_by("k").agg(n="count(*)", total="sum(v)").to_view("sums")
        return made

    for number in range(2):
        (folder / f"{number}.json").write_text('{"k": "Robert", "v": 1}\n{"k": "Rupert", "v": 2}\n')
        with app().start(spark) as running:
            for _ in range(600):
                running._carrier.check()  # noqa: SLF001 -- what ended the app, at once
                rows = app().view("sums").to_pylist()
                if rows and rows[0]["n"] == 2 * number + 2:
                    break
                SystemClock().sleep(0.05)
        assert app().view("sums").to_pylist() == [{"k": "R163", "n": 2 * number + 2, "total": 3 * number + 3}]


def test_sparks_sources_need_spark():
    app = hr.App("rates")
    app.read("rate", "timestamp timestamp, value bigint").to_view("v")
    with pytest.raises(HeadraceError, match=r"(?i)spark"):
        Driver(app)


# ---- steps, on both carriers ----


class Kept:
    """A sink that remembers what it was given, by epoch."""

    def __init__(self):
        self.epochs = {}

    def write(self, epoch, rows):
        """Keep them."""
        self.epochs[epoch] = rows.to_pylist()


@pytest.mark.on_spark
def test_a_sink_of_ones_own_gets_each_epoch_with_weights(drive):
    app, table, stream = hr.App("sinks"), Kept(), Kept()
    stream.name = "stream"
    rows = app.stream("t", ROWS, event_time="at")
    rows.group_by("k").agg(n="count(*)").to(table)
    rows.select("v").to(stream)
    driver = drive(app)
    driver.send("t", {"k": "a", "v": 1, "at": 1}, {"k": "b", "v": 2, "at": 2})
    driver.step()
    driver.send("t", {"k": "a", "v": 3, "at": 3})
    driver.step()
    driver.run()
    deltas = [sorted((row["k"], row["n"], row["_weight"]) for row in rows) for rows in table.epochs.values()]
    assert deltas == [[("a", 1, 1), ("b", 1, 1)], [("a", 1, -1), ("a", 2, 1)]]
    assert [[row["v"] for row in rows] for rows in stream.epochs.values()] == [[1, 2], [3]]


def test_arrays_and_maps_explode(drive):
    app = hr.App("explode")
    rows = app.stream("t", "id int, tags array<string>, prices map<string,int>, at timestamp", event_time="at")
    rows.explode("tags", "tag").select("id", "tag").to_topic("tags")
    rows.explode("prices", ("what", "price")).select("id", "what", "price").to_topic("prices")
    rows.explode("tags", "tag").group_by("tag").agg(n="count(*)").to_view("by_tag")
    driver = drive(app)
    driver.send(
        "t",
        {"id": 1, "tags": ["x", None, "x"], "prices": {"a": 1, "b": None}, "at": 1},
        {"id": 2, "tags": [], "prices": {}, "at": 2},
        {"id": 3, "tags": None, "prices": None, "at": 3},
        {"id": 4, "tags": ["é"], "prices": {"": 4}, "at": 4},
    )
    driver.run()
    assert [(row["id"], row["tag"]) for row in driver.read("tags")] == [(1, "x"), (1, None), (1, "x"), (4, "é")]
    got = [(row["id"], row["what"], row["price"]) for row in driver.read("prices")]
    assert got == [(1, "a", 1), (1, "b", None), (4, "", 4)]
    assert {row["tag"]: row["n"] for row in driver.view("by_tag")} == {"x": 2, None: 1, "é": 1}


def test_an_element_is_not_taken_from_a_column_of_any_name(drive):
    app = hr.App("explode")
    app.stream("t", "_element int, tags array<int>").explode("tags", "tag").to_topic("tags")
    driver = drive(app)
    driver.send("t", {"_element": 1, "tags": [7, 8]})
    driver.run()
    assert [(row["_element"], row["tag"]) for row in driver.read("tags")] == [(1, 7), (1, 8)]


def test_a_row_goes_to_the_first_branch_that_it_meets(drive):
    app = hr.App("branch")
    ways = app.stream("t", ROWS, event_time="at").branch(big="v > 10", even="v % 2 = 0", named="k = 'n'")
    for name, rows in ways.items():
        rows.to_topic(name or "rest")
    driver = drive(app)
    driver.send(
        "t",
        *({"k": k, "v": v, "at": 1} for k, v in [("n", 12), ("n", 2), ("n", 3), ("n", None), (None, None), ("x", 5)]),
    )
    driver.run()
    got = {name: [(row["k"], row["v"]) for row in driver.read(name)] for name in ("big", "even", "named", "rest")}
    assert got == {
        "big": [("n", 12)],
        "even": [("n", 2)],
        "named": [("n", 3), ("n", None)],
        "rest": [(None, None), ("x", 5)],
    }


@pytest.mark.on_spark
def test_a_union_joins_levels(drive):
    """A source together with the changes of a table that is a level below it."""
    app = hr.App("union")
    rows = app.stream("t", ROWS, event_time="at")
    changes = rows.group_by("k").agg(n="count(*)").changes()
    both = rows.select("k", what="'row'").union(changes.select("k", what="_change_type"))
    both.group_by("k", "what").agg(n="count(*)").named("both").to_view("both")
    both.to_topic("all")
    driver = drive(app, shards=2)
    for k in ("a", "a", "b"):
        driver.send("t", {"k": k, "v": 1, "at": 1})
        driver.step()
    driver.run()
    got = {(row["k"], row["what"]): row["n"] for row in driver.view("both")}
    assert got == {
        ("a", "row"): 2,
        ("a", "insert"): 1,
        ("a", "update_preimage"): 1,
        ("a", "update_postimage"): 1,
        ("b", "row"): 1,
        ("b", "insert"): 1,
    }
    assert len(driver.read("all")) == sum(got.values())


@pytest.mark.on_spark
def test_a_function_over_batches_may_drop_and_make_rows(drive):
    def twice(table):
        kept = table.filter(pa.compute.greater(table.column("v"), 1))
        return pa.concat_tables([kept, kept]).append_column("half", pa.array([0.5] * (2 * kept.num_rows)))

    app = hr.App("batches")
    rows = app.stream("t", ROWS, event_time="at").map_batches(twice, "k string, half double")
    rows.group_by("k").window(hr.tumbling("1 s", grace="0 s")).agg(n="count(*)", total="sum(half)").to_view("out")
    driver = drive(app, shards=2)
    driver.send("t", *({"k": "ab"[v % 2], "v": v, "at": v * 600} for v in range(5)))
    driver.run()
    got = [(row["k"], row["window_start"], row["n"], row["total"]) for row in driver.view("out")]
    assert got == [("a", at(1000), 2, 1.0), ("a", at(2000), 2, 1.0), ("b", at(1000), 2, 1.0)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("partitions", [1, 3])
def test_partitions_and_shards_change_no_result(partitions, shards):
    app = hr.App("spread")
    rows = app.stream("t", ROWS, key="k", event_time="at", partitions=partitions)
    table = rows.group_by("k").agg(n="count(*)", total="sum(v)")
    table.to_view("out")
    table.group_by("n").agg(keys="count(*)").named("sizes").to_view("sizes")
    with Driver(app, shards=shards) as driver:
        for part in range(3):
            driver.send("t", *({"k": f"k{i % 17}", "v": i, "at": i} for i in range(part * 100, part * 100 + 100)))
            driver.step()
        driver.run()
        expected = {f"k{k}": (len(range(k, 300, 17)), sum(range(k, 300, 17))) for k in range(17)}
        assert {row["k"]: (row["n"], row["total"]) for row in driver.view("out")} == expected
        assert {row["n"]: row["keys"] for row in driver.view("sizes")} == {17: 6, 18: 11} or sum(
            row["keys"] for row in driver.view("sizes")
        ) == 17


# ---- explain ----


def explained():
    app = hr.App("explained")
    rows = app.stream("orders", "user string, price double, at timestamp", event_time="at", out_of_order="5 s")
    by_user = rows.where("price > 1").group_by("user").window(hr.tumbling("1 minute", grace="10 s")).agg(n="count(*)")
    by_user.to_view("by_user")
    by_user.group_by("n").agg(users="count(*)").named("sizes").to_topic("sizes")
    by_user.late.to_topic("late")
    return app.explain()


TEXT = """\
app explained: 3 levels
level 0 (per input partition)
  orders  [source]
      detail topic orders, event time at, out of order 5 seconds
      schema user string, price double, at timestamp
  orders_where  [where]  <- orders
      detail price > 1
      schema user string, price double, at timestamp
  orders_agg_by_user_late  [late]  <- orders_agg_by_user
      detail rows after their windows closed
      schema user string, price double, at timestamp
level 1 (per shard, after an exchange)
  orders_agg_by_user  [agg]  <- orders_where
      detail count(*) AS n
      window tumbling 1 minute, grace 10 seconds
      emit   changes
      key    user, window_start, window_end
      state  a row per (user, pane of 1 minute), dropped when its last window closes
      schema user string, window_start timestamp, window_end timestamp, n bigint
level 2 (per shard, after an exchange)
  sizes  [agg]  <- orders_agg_by_user
      detail count(*) AS users
      emit   changes
      key    n
      state  a row per (n), kept for ever
      schema n bigint, users bigint
sinks
  view:by_user  <- orders_agg_by_user
  topic:sizes  <- sizes
  topic:late  <- orders_agg_by_user_late"""

MERMAID = """\
flowchart LR
  subgraph L0["level 0"]
    orders["orders<br/>source"]
    orders_where["orders_where<br/>where"]
    orders_agg_by_user_late["orders_agg_by_user_late<br/>late"]
  end
  subgraph L1["level 1"]
    orders_agg_by_user[["orders_agg_by_user<br/>agg<br/>tumbling 1 minute, grace 10 seconds<br/>key user, window_start, window_end"]]
  end
  subgraph L2["level 2"]
    sizes[["sizes<br/>agg<br/>key n"]]
  end
  orders --> orders_where
  orders_where ==>|exchange| orders_agg_by_user
  orders_agg_by_user ==>|exchange| sizes
  orders_agg_by_user --> orders_agg_by_user_late
  orders_agg_by_user --> sink0[("view:by_user")]
  sizes --> sink1[("topic:sizes")]
  orders_agg_by_user_late --> sink2[("topic:late")]"""  # noqa: E501


def test_the_plan_is_explained_as_text():
    assert str(explained()) == TEXT


def test_the_plan_is_explained_as_a_graph():
    assert explained().mermaid == MERMAID


def test_the_plan_is_explained_as_json():
    made = json.loads(explained().json)
    assert (made["app"], made["levels"]) == ("explained", 3)
    steps = {step["name"]: step for step in made["steps"]}
    assert steps["sizes"] == {
        "name": "sizes",
        "verb": "agg",
        "level": 2,
        "inputs": ["orders_agg_by_user"],
        "exchange": True,
        "detail": "count(*) AS users",
        "key": ["n"],
        "window": None,
        "emit": "changes",
        "state": "a row per (n), kept for ever",
        "schema": "n bigint, users bigint",
        "reads": None,
    }
    assert made["sinks"][0] == {"name": "view:by_user", "from": "orders_agg_by_user", "guarantee": "exactly_once"}


def test_a_relative_storage_is_that_of_the_folder_the_app_was_started_in(spark, tmp_path, monkeypatch):
    """Spark's processes are in a folder of their own: that of the session's start."""
    monkeypatch.chdir(tmp_path)
    app = hr.App("relative", storage="here", topics="log:there", shards=2)
    app.stream("t", "k string").group_by("k").agg(n="count(*)").to_view("counts")
    with app.start(spark) as running:
        hr.Log("there").topic("t").append([{"k": "a"}])
        running.await_caught_up(timeout=300)
    assert app.view("counts").to_pylist() == [{"k": "a", "n": 1}]


def test_a_driver_goes_on_with_the_shards_of_its_storage(tmp_path):
    def app():
        counted = hr.App("again")
        counted.stream("t", "k string").group_by("k").agg(n="count(*)").to_view("v")
        return counted

    for shards, times in ((3, 1), (None, 2)):
        with Driver(app(), storage=tmp_path, shards=shards) as driver:
            driver.send("t", {"k": "a"})
            driver.run()
            assert driver.view("v") == [{"k": "a", "n": times}]
