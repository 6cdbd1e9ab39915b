"""Tables of Iceberg as sinks, with a SQL catalog."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from crashing_sinks import WRITER, Kept, batches, check_crashes, check_each_crash, check_zombie, for_rows

import headrace as hr
from budget import fast
from headrace.base.broker_errors import LoginRefused
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.schema import parse
from headrace.base.time import ManualClock
from headrace.connect.store import StoreDiffers, StoreRefused
from headrace.testing import Driver, check_sink

pyiceberg = pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog  # noqa: E402 - only where there is the library
from pyiceberg.exceptions import UnauthorizedError  # noqa: E402
from pyiceberg.types import LongType  # noqa: E402

from headrace.connect import iceberg  # noqa: E402 - the same

BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
FILES = "headrace.connect.iceberg.files"


class Lake:
    """A catalog in a file of SQLite, with its warehouse in the folder next to it."""

    def __init__(self, path):
        self.options = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}/warehouse"}

    def sink(self, name, **options):
        return iceberg.table(name, catalog=self.options, **options)

    def with_table(self, name, does):
        catalog = load_catalog("default", **self.options)
        try:
            return does(catalog.load_table(name))
        finally:
            catalog.close()

    def rows(self, name):
        return self.with_table(name, lambda table: table.scan().to_arrow().to_pylist())


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


@pytest.fixture
def make(lake):
    number = itertools.count()

    def fresh():
        name = f"kit.t{next(number)}"
        return lake.sink(name), lambda: lake.rows(name)

    return fresh


@BOTH
def test_a_table_of_iceberg_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@pytest.mark.parametrize("table", fast(*[True], of=[False, True]))
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table, monkeypatch):
    """Also while files are gathered, and manifests left out, which is with every second snapshot here."""
    monkeypatch.setattr(f"{FILES}.GATHERED", 2)
    monkeypatch.setattr("headrace.connect.iceberg.snapshots.IDLE_MANIFESTS", 1)
    check_each_crash(make, table=table)
    check_crashes(make, table=table, upto=2)


@BOTH
def test_an_older_writer_changes_nothing(make, table):
    check_zombie(make, None, table=table)


@BOTH
def test_a_snapshot_between_the_look_and_the_commit_refuses_the_epoch(make, table):
    """Another writer is quicker: this one is called again, and its epoch is there once; an older copy of it, too."""
    sink, read = make()
    sink = for_rows(sink, table=table)
    sink.prepare(clock=ManualClock())
    other = sink.open(writer="other/1/s", clock=ManualClock())
    same = sink.open(writer=WRITER, clock=ManualClock())
    rows = [(1, "a", False)]

    def between(point):
        if point == "before_commit" and pending:
            pending.pop()()

    writer = replace(sink, fault=between).open(writer=WRITER, clock=ManualClock())
    pending = [lambda: other.publish(0, batches([(2, "b", False)], table=table))]
    with pytest.raises(Unavailable):
        writer.publish(0, batches(rows, table=table))
    pending = [lambda: same.publish(0, batches(rows, table=table))]
    with pytest.raises(Unavailable):
        writer.publish(0, batches(rows, table=table))
    writer.publish(0, batches(rows, table=table))
    assert sorted(row["id"] for row in read()) == [1, 2]
    for each in (writer, same, other):
        each.close()


def test_the_mark_outlives_its_snapshots_and_a_rollback_shows(make, lake):
    """Expired snapshots take no mark away; a table that somebody rolled back has the epoch that it has."""
    sink, read = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=ManualClock())
    writer = sink.open(writer=WRITER, clock=ManualClock())
    for epoch in range(3):
        writer.publish(epoch, batches([(epoch, "a", False)], table=True))
    first = lake.with_table("kit.t0", lambda table: table.history()[0].snapshot_id)
    lake.with_table("kit.t0", lambda table: table.manage_snapshots().rollback_to_snapshot(first).commit())
    again = sink.open(writer=WRITER, clock=ManualClock())
    assert (again.last_epoch(), [row["id"] for row in read()]) == (0, [0])
    other = sink.open(writer="other/1/s", clock=ManualClock())
    other.publish(0, batches([(9, "z", False)], table=True))

    def expire(table):
        ids = [
            each.snapshot_id for each in table.snapshots() if each.snapshot_id != table.current_snapshot().snapshot_id
        ]
        table.maintenance.expire_snapshots().by_ids(ids).commit()

    lake.with_table("kit.t0", expire)
    last = sink.open(writer=WRITER, clock=ManualClock())
    assert last.last_epoch() == 2
    for each in (writer, again, other, last):
        each.close()


def test_what_does_not_fit_is_refused(make, lake):
    sink, _ = make()
    for_rows(sink, table=True).prepare(clock=ManualClock())
    options = {"key": ("id",), "is_table": True, "sealed": frozenset()}
    other = sink.for_step(schema=pa.schema([("id", pa.int64())]), **options)
    with pytest.raises(StoreDiffers, match="other columns"):
        other.prepare(clock=ManualClock())
    with pytest.raises(InvalidPlan, match="partitioned"):
        lake.sink("a.b", partition_by="tex").for_step(schema=pa.schema([("text", pa.string())]), **options)
    with pytest.raises(InvalidPlan, match=r"a\.b"):
        sink.for_step(schema=pa.schema([("a.b", pa.string())]), **options)
    with pytest.raises(InvalidPlan, match="namespace"):
        lake.sink("b")


def test_a_catalog_that_does_not_answer_is_tried_again_and_shows_no_password(tmp_path, monkeypatch):
    options = {"type": "sql", "warehouse": f"file://{tmp_path}", "uri": "env:CATALOG"}
    sink = for_rows(iceberg.table("a.b", catalog=options), table=True)
    with pytest.raises(InvalidPlan, match="CATALOG"):
        sink.prepare(clock=ManualClock())
    monkeypatch.setenv("CATALOG", f"sqlite:///{tmp_path}/missing/catalog.db")
    with pytest.raises(Unavailable, match="unable to open"):
        sink.prepare(clock=ManualClock())
    assert "s3cret" not in repr(iceberg.table("a.b", catalog={"token": "s3cret"}))


def test_a_table_that_is_dropped_is_output_lost(make, lake):
    sink, _ = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=ManualClock())
    writer = sink.open(writer=WRITER, clock=ManualClock())
    catalog = load_catalog("default", **lake.options)
    catalog.drop_table("kit.t0")
    catalog.close()
    with pytest.raises(OutputLost, match="dropped"):
        writer.publish(0, batches([(1, "a", False)], table=True))
    writer.close()


def test_a_table_whose_columns_somebody_changes_takes_no_more_rows(make, lake):
    """A column that was dropped is not left out without a word; nor does one that was added end the app as a bug."""
    for change in (lambda columns: columns.delete_column("text"), lambda columns: columns.add_column("y", LongType())):
        sink, _ = make()
        sink = for_rows(sink, table=True)
        sink.prepare(clock=ManualClock())
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, batches([(1, "a", False)], table=True))

        def changed(table, change=change):
            with table.update_schema(allow_incompatible_changes=True) as columns:
                change(columns)

        lake.with_table(sink.table, changed)
        with pytest.raises(StoreDiffers, match="other columns"):
            writer.publish(1, batches([(2, "b", False)], table=True))
        writer.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"type": "nonsense"}, "nonsense"),
        ({"uri": "nonsense"}, "parse"),
        ({"uri": "nosuch://host/catalog"}, "nosuch"),
        ({"warehouse": ""}, "location"),
        ({"uri": "env:NO_DATABASE"}, "not a database"),
    ],
)
def test_a_catalog_that_there_cannot_be_is_refused_with_what_is_wrong(lake, tmp_path, monkeypatch, options, says):
    (tmp_path / "text").write_text("this is no database" * 100)
    monkeypatch.setenv("NO_DATABASE", f"sqlite:///{tmp_path}/text")
    wanted = {name: value for name, value in (lake.options | options).items() if value}
    with pytest.raises(StoreRefused, match=f"refuses the app: .*{says}"):
        for_rows(iceberg.table("a.b", catalog=wanted), table=True).prepare(clock=ManualClock())


def test_a_catalog_that_refuses_the_login_is_told_as_such(lake, monkeypatch):
    def refused(*_names, **_options):
        raise UnauthorizedError("NotAuthorizedException: the token is unknown")

    monkeypatch.setattr("headrace.connect.iceberg.declared.load_catalog", refused)
    with pytest.raises(LoginRefused, match="the token is unknown"):
        for_rows(lake.sink("a.b"), table=True).prepare(clock=ManualClock())


KEYS = pa.schema([("n", pa.decimal128(20, 4)), ("at", pa.timestamp("us", tz="UTC")), ("text", pa.string()),
                  ("day", pa.date32()), ("x", pa.float64()), ("value", pa.int16())])  # fmt: skip


def test_keys_of_every_type_with_nulls_are_merged_as_a_dictionary_would(lake, monkeypatch):
    """Decimals, instants, long texts, days, NaN, and nulls in each place; deletions, and rows that come back."""
    monkeypatch.setattr(f"{FILES}.GATHERED", 3)
    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)  # noqa: S311 - test data
    key = tuple(KEYS.names[:-1])
    sink = lake.sink("any.keys", partition_by="day").for_step(schema=KEYS, key=key, is_table=True, sealed=frozenset())
    sink.prepare(clock=ManualClock())
    writer = sink.open(writer=WRITER, clock=ManualClock())
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def one():
        drawn = (
            Decimal(draw.randrange(-3, 3)).scaleb(-4),
            start + timedelta(microseconds=draw.randrange(2)),
            "x" * 40 + draw.choice(["", "a", "ä", "\U0010ffff"]),
            draw.choice([date(2024, 1, 1), date(1960, 1, 1)]),
            draw.choice([0.0, float("nan"), 1.5]),
        )
        return tuple(None if draw.random() < 0.2 else each for each in drawn)

    def told(values):
        return tuple(each.isoformat() if isinstance(each, datetime) else str(each) for each in values)

    wanted, kinds = {}, [*KEYS.types, pa.bool_()]
    for epoch in range(12):
        rows = {told(each): each for each in (one() for _ in range(draw.choice([1, 20])))}
        changes = [(*each, draw.randrange(100), draw.random() < 0.4) for each in rows.values()]
        columns = [pa.array(each, kind) for each, kind in zip(zip(*changes, strict=True), kinds, strict=True)]
        batch = pa.record_batch(columns, names=[*KEYS.names, "_deleted"])
        writer.publish(epoch, iter([batch]))
        for *each, value, deleted in changes:
            wanted.pop(told(each), None)
            wanted |= {} if deleted else {told(each): value}
    writer.close()
    found = [(told(row[name] for name in key), row["value"]) for row in lake.rows("any.keys")]
    assert sorted(found) == sorted(wanted.items()), f"seed {seed}"


def test_many_keys_are_merged_compared_and_repaired(lake):
    """More keys than are looked for one by one; what somebody changed is found, and written again."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    sink = lake.sink("any.many").for_step(schema=schema, key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=ManualClock())
    writer = sink.open(writer=WRITER, clock=ManualClock())

    def batch(ids, text, *, deleted=False):
        columns = {"id": pa.array(ids, pa.int64()), "text": pa.array([f"{text}{each}" for each in ids])}
        return pa.record_batch(columns | {"_deleted": pa.array([deleted] * len(ids))})

    writer.publish(0, iter([batch(range(2000), "a")]))
    writer.publish(1, iter([batch(range(500, 900), "b"), batch(range(1800, 2000), "b", deleted=True)]))
    wanted = {each: f"{'b' if 500 <= each < 900 else 'a'}{each}" for each in range(1800)}
    assert {row["id"]: row["text"] for row in lake.rows("any.many")} == wanted
    whole = pa.record_batch({"id": pa.array(wanted, pa.int64()), "text": pa.array(wanted.values())})
    assert sink.compare(iter([whole]), repair=False).count == 0
    writer.publish(2, iter([batch([7, 5000], "x"), batch([9], "", deleted=True)]))
    writer.close()
    found = sink.compare(iter([whole]), repair=True)
    assert (found.missing, found.other, found.extra) == (1, 1, 1)
    assert {row["id"]: row["text"] for row in lake.rows("any.many")} == wanted


def test_a_table_of_an_app_is_merged_and_files_are_few(lake):
    """Every type comes back as it was; a name with spaces is a name; 20 epochs leave few files and manifests."""
    app = hr.App("shop")
    kinds = "price decimal(20,4), at timestamp, day date, tags array<string>, raw binary, x double, s smallint"
    items = app.table("items", f"`the id` int, {kinds}", key="the id")
    items.to(lake.sink("shop.items"))
    items.changes().to(lake.sink("shop.changes", partition_by="day"))
    row = {"price": "12.5", "at": "2024-05-01T10:00:00Z", "day": "2024-05-01", "tags": ["a", None], "raw": b"\x00\xff"}
    with Driver(app) as driver:
        for number in range(20):
            driver.send("items", row | {"the id": number % 3, "x": float(number), "s": 7})
            driver.run()
        driver.send("items", {"the id": 2, "_deleted": True})
        driver.run()
    kept = sorted(lake.rows("shop.items"), key=lambda each: each["the id"])
    assert [(each["the id"], each["x"]) for each in kept] == [(0, 18.0), (1, 19.0)]
    assert (kept[0]["raw"], kept[0]["tags"], kept[0]["s"]) == (b"\x00\xff", ["a", None], 7)
    assert (kept[0]["price"], kept[0]["at"].isoformat()) == (Decimal("12.5000"), "2024-05-01T10:00:00+00:00")
    for name, most in (("shop.items", 3), ("shop.changes", 14)):
        assert lake.with_table(name, lambda table: len(list(table.scan().plan_files()))) <= most
    assert len(lake.rows("shop.changes")) > 20


@pytest.mark.parametrize("column", ["x double", "x float", "x array<int>", "x struct<a:int>"])
def test_an_iceberg_table_is_not_partitioned_by_floats_or_nested_values(column):
    """The library writes the rows of 0.0 and -0.0 twice, and none of NaN."""
    items = hr.App("shop").stream("items", f"id int, {column}")
    with pytest.raises(InvalidPlan, match="cannot be partitioned"):
        items.to(iceberg.table("shop.items", catalog={"type": "sql", "uri": "sqlite://"}, partition_by="x"))


@pytest.mark.parametrize("kind", ["array<struct<a:int>>", "struct<x:array<struct<a:int>>>"])
def test_arrays_of_structs_are_no_key_of_an_iceberg_table(kind):
    """Null and empty ones would be one there, and the rows of a key that is null would stay."""
    counts = hr.App("shop").stream("items", f"id int, k {kind}").group_by("k").agg(n="count(*)")
    with pytest.raises(InvalidPlan, match='cannot have the key "k"'):
        counts.to(iceberg.table("shop.items", catalog={"type": "sql", "uri": "sqlite://"}))


def test_a_table_is_level_where_its_arrays_of_structs_are_null(lake):
    """The library stores them as empty ones: no repair would change that."""
    app = hr.App("shop")
    schema = "id int, a array<struct<x:int>>, m map<string,struct<x:int>>, s struct<x:int>"
    sink = lake.sink("shop.items")
    app.table("items", schema, key="id").to(sink)
    rows = [{"id": 1}, {"id": 2, "a": [], "m": {}}, {"id": 3, "a": [{"x": 1}, None], "m": {"k": {"x": 2}}}]
    with Driver(app) as driver:
        driver.send("items", *rows)
        driver.run()
    columns = parse(schema)
    sink = sink.for_step(schema=columns, key=("id",), is_table=True, sealed=frozenset())
    wanted = pa.Table.from_pylist([{**dict.fromkeys(columns.names), **row} for row in rows], columns).to_batches()
    assert sink.compare(iter(wanted), repair=False).count == 0
    wanted = pa.Table.from_pylist([{"id": 1}, {"id": 2, "a": [{"x": 9}]}, rows[2]], columns).to_batches()
    found = sink.compare(iter(wanted), repair=False)
    assert (found.missing, found.other, found.extra) == (0, 1, 0)


def test_a_partition_whose_name_is_too_long_is_refused_at_once(tmp_path):
    """Waiting would not mend it."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    app = hr.App("shop")
    app.stream("items", "id int, city string").to(iceberg.table("shop.items", catalog=catalog, partition_by="city"))
    with Driver(app) as driver:
        driver.send("items", {"id": 1, "city": "x" * 300})
        with pytest.raises(StoreRefused, match="too long"):
            driver.run()
