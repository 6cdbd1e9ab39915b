"""Tables of Delta Lake as sinks."""

from __future__ import annotations

import itertools
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crashing_sinks import WRITER, Kept, batches, check_crashes, check_each_crash, check_zombie, for_rows

import headrace as hr
from budget import fast
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.time import ManualClock
from headrace.connect.store import StoreDiffers, StoreRefused
from headrace.testing import Driver, check_sink

deltalake = pytest.importorskip("deltalake")
from headrace.connect import delta  # noqa: E402 - only where there is the library

BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])


def rows_of(path):
    """Return the rows of the files that the last version names."""
    names = deltalake.DeltaTable(path).file_uris()
    return [row for each in names for row in pq.ParquetFile(each.removeprefix("file://")).read().to_pylist()]


@pytest.fixture
def make(tmp_path):
    number = itertools.count()

    def fresh():
        path = str(tmp_path / str(next(number)))
        return delta.table(path), lambda: rows_of(path)

    return fresh


def opened(sink, *, table):
    """Return a sink of the rows of these tests, which is prepared, and a writer of it."""
    sink = for_rows(sink, table=table)
    sink.prepare(clock=ManualClock())
    return sink, sink.open(writer=WRITER, clock=ManualClock())


@BOTH
def test_a_table_of_delta_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@pytest.mark.parametrize("table", fast(*[True], of=[False, True]))
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table, monkeypatch):
    """Also while files are compacted, which is after every second version here."""
    check_each_crash(make, table=table)
    monkeypatch.setattr("headrace.connect.delta.lake.MOST_FILES", 2)
    check_crashes(make, table=table, upto=2)


@BOTH
def test_an_older_writer_changes_nothing(make, table):
    check_zombie(make, None, table=table)


def test_a_version_between_the_look_and_the_commit_refuses_the_epoch(make, monkeypatch):
    """Another writer is quicker: this one is called again, and its epoch is there once."""
    sink, read = make()
    sink = for_rows(sink, table=False)
    sink.prepare(clock=ManualClock())
    writer, rows = sink.open(writer=WRITER, clock=ManualClock()), [(1, "a", False)]
    stale = sink.opened()
    sink.open(writer="other/1/s", clock=ManualClock()).publish(0, batches([(2, "b", False)], table=False))
    with monkeypatch.context() as patched:
        patched.setattr(type(sink), "opened", lambda _: stale)
        with pytest.raises(Unavailable):
            writer.publish(0, batches(rows, table=False))
    writer.publish(0, batches(rows, table=False))
    assert sorted(row["id"] for row in read()) == [1, 2]


def test_other_columns_are_refused(make):
    sink, _ = make()
    for_rows(sink, table=True).prepare(clock=ManualClock())
    options = {"key": ("id",), "is_table": True, "sealed": frozenset()}
    other = sink.for_step(schema=pa.schema([("id", pa.int64())]), **options)
    with pytest.raises(StoreDiffers, match="other columns"):
        other.prepare(clock=ManualClock())
    with pytest.raises(InvalidPlan, match="partitioned"):
        delta.table("x", partition_by="tex", storage_options={"key": "s3cret"}).for_step(
            schema=pa.schema([("text", pa.string())]), **options
        )
    assert "s3cret" not in repr(delta.table("x", storage_options={"key": "s3cret"}))


def test_a_table_of_an_app_is_merged_and_small_files_are_few(tmp_path, monkeypatch):
    """Every type comes back as it was; a name with spaces is a name; 40 epochs leave few files."""
    monkeypatch.setattr("headrace.connect.delta.lake.MOST_FILES", 8)
    app = hr.App("shop")
    kinds = "`the id` int, price decimal(20,4), at timestamp, day date, tags array<string>, raw binary, x double"
    items = app.table("items", kinds, key="the id")
    items.to(delta.table(tmp_path / "items"))
    items.changes().to(delta.table(tmp_path / "changes", partition_by="day"))
    row = {"price": "12.5", "at": "2024-05-01T10:00:00Z", "day": "2024-05-01", "tags": ["a", None], "raw": b"\x00\xff"}
    with Driver(app) as driver:
        for number in range(40):
            driver.send("items", row | {"the id": number % 3, "x": float(number)})
            driver.run()
        driver.send("items", {"the id": 2, "_deleted": True})
        driver.run()
    kept = sorted(rows_of(str(tmp_path / "items")), key=lambda each: each["the id"])
    assert [(each["the id"], each["x"]) for each in kept] == [(0, 39.0), (1, 37.0)]
    assert (kept[0]["raw"], kept[0]["tags"]) == (b"\x00\xff", ["a", None])
    assert kept[0]["at"].isoformat() == "2024-05-01T10:00:00+00:00"
    assert len(deltalake.DeltaTable(tmp_path / "changes").file_uris()) < 12


@pytest.mark.parametrize("kinds", ["a boolean, b int", "a int, b int", "a boolean, b boolean"])
def test_a_key_of_several_columns_is_merged(tmp_path, kinds):
    app = hr.App("shop")
    app.table("items", f"{kinds}, v int", key=["a", "b"]).to(delta.table(tmp_path / "items"))
    keys = [(a, b) for a in (0, 1) for b in (0, 1)]
    if "boolean" in kinds:
        keys = [(bool(a), bool(b) if kinds.count("boolean") == 2 else b) for a, b in keys]
    with Driver(app) as driver:
        for number in range(3):
            for a, b in keys:
                driver.send("items", {"a": a, "b": b, "v": number})
                driver.run()
        driver.delete("items", a=keys[1][0], b=keys[1][1])
        driver.run()
    rows = sorted((each["a"], each["b"], each["v"]) for each in rows_of(str(tmp_path / "items")))
    assert rows == [(a, b, 2) for a, b in keys if (a, b) != keys[1]]


@pytest.mark.parametrize("column", ["raw binary", "price decimal(10,2)", "tags array<string>", "at struct<x:int>"])
def test_a_delta_table_is_not_partitioned_by_what_has_no_text(tmp_path, column):
    """The library writes -1.50 as `-1.-50`, and reads bytes of a path as others: a merge found no row and added one."""
    items = hr.App("shop").table("items", f"id int, {column}", key="id")
    with pytest.raises(InvalidPlan, match="cannot be partitioned"):
        items.to(delta.table(tmp_path / "items", partition_by=column.split()[0]))


def test_a_delta_table_is_not_partitioned_by_all_columns(tmp_path):
    items = hr.App("shop").stream("items", "id int")
    with pytest.raises(InvalidPlan, match="all columns"):
        items.to(delta.table(tmp_path / "items", partition_by="id"))


def test_a_delta_table_that_is_gone_or_damaged_says_so(make, tmp_path):
    """Errors of the library are those of the store, in words without its colours and its trace."""
    _, writer = opened(make()[0], table=True)
    writer.publish(0, batches([(1, "a", False)], table=True))
    (tmp_path / "0/_delta_log/00000000000000000001.json").write_text("{nonsense")
    with pytest.raises(StoreRefused, match=r"refuses epoch 1: .*Json error") as refused:
        writer.publish(1, batches([(2, "b", False)], table=True))
    assert "unknown" not in str(refused.value)
    shutil.rmtree(tmp_path / "0")
    with pytest.raises(OutputLost, match="is gone"):
        writer.publish(1, batches([(2, "b", False)], table=True))


@pytest.mark.parametrize(
    ("path", "options", "says"),
    [("xyz://lake/a", {}, "Unknown scheme"), ("s3://lake/a", {"max_retries": "many"}, "max_retries")],
)
def test_a_delta_table_that_there_cannot_be_is_refused_with_what_is_wrong(path, options, says):
    with pytest.raises(StoreRefused, match=f"refuses the app: .*{says}"):
        for_rows(delta.table(path, storage_options=options), table=True).prepare(clock=ManualClock())


def test_a_constraint_of_a_delta_table_is_named_without_the_rows(make, tmp_path):
    """They may have private values."""
    _, writer = opened(make()[0], table=False)
    deltalake.DeltaTable(tmp_path / "0").alter.add_constraint({"few": "id < 2"})
    with pytest.raises(StoreRefused, match="1 rows failed") as refused:
        writer.publish(0, batches([(7, "moneypenny", False)], table=False))
    assert "moneypenny" not in str(refused.value)


def test_a_table_is_not_kept_in_a_delta_table_that_is_append_only(make, tmp_path):
    """Each attempt would be refused: it is said at once, and again at the start."""
    sink, read = make()
    sink, writer = opened(sink, table=True)
    writer.publish(0, batches([(1, "a", False)], table=True))
    deltalake.DeltaTable(tmp_path / "0").alter.set_table_properties({"delta.appendOnly": "true"})
    for attempt in (
        lambda: writer.publish(1, batches([(1, "b", False)], table=True)),
        lambda: sink.prepare(clock=ManualClock()),
    ):
        with pytest.raises(StoreDiffers, match="append-only"):
            attempt()
    deltalake.DeltaTable(tmp_path / "0").alter.set_table_properties({"delta.appendOnly": "false"})
    writer.publish(1, batches([(1, "b", False)], table=True))
    assert read() == [{"id": 1, "text": "b"}]


def test_a_delta_table_stays_where_the_app_was_started(tmp_path, monkeypatch):
    (tmp_path / "started").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "started")
    _, writer = opened(delta.table("lake"), table=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    writer.publish(0, batches([(1, "a", False)], table=False))
    assert rows_of(str(tmp_path / "started" / "lake")) == [{"id": 1, "text": "a"}]
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_a_delta_table_is_partitioned_by_negative_whole_decimals(tmp_path):
    app = hr.App("shop")
    items = app.table("items", "id int, price decimal(10,0)", key="id")
    items.group_by("price").agg(n="count(*)").to(delta.table(tmp_path / "prices", partition_by="price"))
    with Driver(app) as driver:
        for prices in (("-5", "0"), ("-5", "7"), ("-5", "-5")):
            driver.send("items", *({"id": number, "price": price} for number, price in enumerate(prices)))
            driver.run()
    found = deltalake.DeltaTable(tmp_path / "prices").to_pyarrow_dataset().to_table().to_pylist()
    assert [(str(row["price"]), row["n"]) for row in found] == [("-5", 2)]
