"""Schemas evolve: columns are added and widened, old records are read under the new schema."""

import math
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from headrace.base.errors import InvalidRows, InvalidTopic, SchemaRefused, TopicExists
from headrace.base.schema import parse, to_ddl
from headrace.log import Log

START = "id bigint not null, n int, price decimal(5,2), at timestamp"


def rows_of(topic, columns=None):
    """Return all records, each frame's batch under the current schema."""
    found = []
    for number in range(topic.partitions):
        ends, starts = topic.end_offsets(), topic.start_offsets()
        for batch in topic.batches(number, starts[number], ends[number], columns=columns):
            assert batch.schema.types == [topic.schema.field(name).type for name in batch.schema.names]
            found += batch.to_pylist()
    return found


@pytest.fixture(autouse=True)
def topic(log):
    topic = log.create_topic("a", START, event_time="at")
    topic.append([{"id": 1, "n": 7, "price": "1.25", "at": "2026-01-01"}, {"id": 2, "at": "2026-01-02"}])
    return topic


def test_a_column_that_was_added_is_null_in_older_records(topic, again):
    assert topic.evolve(f"{START}, city string") == ['"city" added, string']
    topic.append([{"id": 3, "city": "Bern", "at": "2026-01-03"}])
    for seen in (topic, again().topic("a")):
        assert [(row["id"], row["city"]) for row in rows_of(seen)] == [(1, None), (2, None), (3, "Bern")]
        assert [row["city"] for row in rows_of(seen, ["city"])] == [None, None, "Bern"]
        assert seen.read(0, 0, 9).column("city").to_pylist() == [None, None, "Bern"]
        assert [to_ddl(schema) for schema in seen.schemas] == [START, f"{START}, city string"]


def test_a_default_stands_in_older_records_and_in_rows_without_the_column(topic, again):
    changed = topic.evolve(
        f"{START}, city string not null, rank int, tags array<string>", {"city": "Bern", "tags": ["a", "b"]}
    )
    assert changed[0] == "\"city\" added, string, by default 'Bern'"
    topic.append([{"id": 3}, {"id": 4, "city": "Basel", "tags": None}])
    topic.append(pa.table({"id": [5]}))
    with pytest.raises(InvalidRows, match='column "city" is null, but it was declared not null'):
        topic.append([{"id": 6, "city": None}])
    for seen in (topic, again().topic("a")):
        assert [(row["city"], row["tags"], row["rank"]) for row in rows_of(seen)] == [
            ("Bern", ["a", "b"], None),
            ("Bern", ["a", "b"], None),
            ("Bern", ["a", "b"], None),
            ("Basel", None, None),
            ("Bern", ["a", "b"], None),
        ]
    with again().producer() as producer:
        producer.send("a", {"id": 7})
    assert rows_of(topic)[-1]["city"] == "Bern"


def test_a_tombstone_has_no_default(log):
    topic = log.create_topic("k", "id bigint, v string", key="id")
    topic.append([{"id": 1, "v": "x"}, {"id": 1, "_deleted": True}])
    topic.evolve("id bigint, v string, w int", {"w": 5})
    topic.append([{"id": 2, "_deleted": True}])
    assert [row["w"] for row in rows_of(topic)] == [5, None, None]


@pytest.mark.parametrize(
    ("old", "new", "values", "expected"),
    [
        ("tinyint", "smallint", [-128, 127, None], [-128, 127, None]),
        ("smallint", "bigint", [-32768, 32767], [-32768, 32767]),
        ("int", "bigint", [-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1]),
        ("int", "double", [-(2**31), 2**31 - 1], [-(2.0**31), 2.0**31 - 1]),
        ("float", "double", [1.5, math.inf, None], [1.5, math.inf, None]),
        ("int", "decimal(12,2)", [-(2**31)], [Decimal("-2147483648.00")]),
        ("bigint", "decimal(19,0)", [2**63 - 1, -(2**63)], [Decimal(2**63 - 1), Decimal(-(2**63))]),
        ("decimal(3,2)", "decimal(38,20)", [Decimal("-9.99")], [Decimal("-9.99")]),
        ("decimal(3,2)", "decimal(4,3)", [Decimal("9.99"), None], [Decimal("9.990"), None]),
        ("date", "timestamp_ntz", [date(1, 1, 1), date(9999, 12, 31)], [datetime(1, 1, 1), datetime(9999, 12, 31)]),  # noqa: DTZ001
        ("array<int>", "array<bigint>", [[1, None], None, []], [[1, None], None, []]),
        ("array<array<float>>", "array<array<double>>", [[[0.5], None]], [[[0.5], None]]),
        ("map<int,float>", "map<bigint,double>", [{1: 0.5}, None], [[(1, 0.5)], None]),
        ("struct<a:int not null,b:date>", "struct<a:bigint,b:date>", [{"a": 1}, None], [{"a": 1, "b": None}, None]),
    ],
)
def test_a_widened_column_gives_every_old_value_exactly(log, old, new, values, expected):
    topic = log.create_topic("w", f"id bigint, v {old}")
    topic.append([{"id": at, "v": value} for at, value in enumerate(values)])
    assert topic.evolve(f"id bigint, v {new}") == [f'"v" widened from {old} to {new}']
    topic.append([{"id": 99}])
    assert [row["v"] for row in rows_of(topic, ["v"])] == [*expected, None]
    assert topic.read(0, 0, 99).schema.field("v") == parse(f"v {new}").field("v")


@pytest.mark.parametrize(
    ("schema", "options", "expected"),
    [
        ("id bigint not null, n int, at timestamp", {}, 'the column "price" is missing: records have values in it'),
        (
            "id bigint not null, nn int, price decimal(5,2), at timestamp",
            {},
            'the column "n" is missing: records have values in it (Did you mean "nn"? Columns are not renamed.)',
        ),
        (START.replace("n int", "n smallint"), {}, 'the column "n" is int and cannot become smallint: not every value'),
        (START.replace("n int", "n float"), {}, 'the column "n" is int and cannot become float: that is another kind'),
        (START.replace("n int", "n string"), {}, 'the column "n" is int and cannot become string: that is another'),
        (START.replace("n int", "n int not null"), {}, 'the column "n" would be not null, but may hold nulls'),
        (START.replace("n int", "n decimal(10,1)"), {}, "cannot become decimal(10,1): 10 digits are needed before"),
        (START.replace("(5,2)", "(6,1)"), {}, "cannot become decimal(6,1): digits behind the point would be lost"),
        (START.replace("(5,2)", "(5,3)"), {}, "cannot become decimal(5,3): digits before the point would be lost"),
        (START.replace("decimal(5,2)", "double"), {}, "is decimal(5,2) and cannot become double: that is another"),
        (START.replace("at timestamp", "at timestamp_ntz"), {}, "which instant it is would depend on a time zone"),
        (f"{START}, x int not null", {}, 'the new column "x" is not null and has no default, so older records'),
        (START, {"n": 5}, 'the default of "n" cannot be set: the column exists'),
        (f"{START}, city string", {"citty": "x"}, 'a default for "citty", which is not a column. Did you mean "city"?'),
    ],
)
def test_what_old_records_could_not_bear_is_refused_with_the_difference(topic, again, schema, options, expected):
    before = rows_of(topic)
    with pytest.raises(SchemaRefused) as error:
        topic.evolve(schema, options)
    assert 'topic "a" cannot take the schema: ' in error.value.what
    assert expected in error.value.what
    assert f"Its schema: {START}. The new one: " in error.value.detail
    assert len(again().topic("a").schemas) == 1
    assert rows_of(topic) == before


def test_all_differences_are_told_at_once(topic):
    with pytest.raises(SchemaRefused) as error:
        topic.evolve("id int not null, price decimal(5,2), at timestamp, x int not null")
    assert error.value.what.count(";") == 2
    assert all(f'column "{name}"' in error.value.what for name in ("id", "n", "x"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("bigint", "double", "a double has 53 bits, a bigint 64"),
        ("double", "float", "not every value fits"),
        ("date", "timestamp", "which instant it is would depend on a time zone"),
        ("string", "binary", "that is another kind of value"),
        ("double", "decimal(38,10)", "that is another kind of value"),
        ("array<bigint>", "array<int>", "not every value fits"),
        ("map<int,int>", "map<int,string>", "that is another kind of value"),
        ("struct<a:int>", "struct<a:int,b:int>", "the fields of a struct stay as they are"),
        ("struct<a:int>", "struct<a:string>", 'its field "a" is int and cannot become string: that is another kind'),
        ("struct<a:int>", "struct<a:int not null>", 'its field "a" would be not null, but may hold nulls'),
    ],
)
def test_a_narrower_or_another_type_is_refused(log, old, new, expected):
    topic = log.create_topic("w", f"v {old}")
    with pytest.raises(SchemaRefused) as error:
        topic.evolve(f"v {new}")
    assert f'the column "v" is {old} and cannot become {new}: {expected}' in error.value.what


def test_a_key_widens_among_integers_only(log):
    topic = log.create_topic("k", "id int, part decimal(5,2)", key=("id", "part"), partitions=8)
    rows = [{"id": n, "part": "1.5"} for n in range(50)]
    first = topic.append(rows)
    with pytest.raises(SchemaRefused, match=r"belongs to the key .* equal keys would go to other partitions"):
        topic.evolve("id int, part decimal(6,2)")
    topic.evolve("id bigint, part decimal(5,2)")
    second = topic.append(rows)
    assert {number: len(given) for number, given in first.items()} == {n: len(given) for n, given in second.items()}
    for number in first:
        ids = topic.read(number, 0, 999).column("id").to_pylist()
        assert ids[: len(ids) // 2] == ids[len(ids) // 2 :]


def test_the_same_schema_changes_nothing_and_another_order_does(topic):
    assert topic.evolve(START) == []
    assert len(topic.schemas) == 1
    turned = "at timestamp, price decimal(5,2), id bigint, n int"
    assert topic.evolve(turned) == ['"id" may be null']
    assert topic.evolve(START.replace(" not null", "")) == ["the order of the columns changes"]
    topic.append([{"id": None, "n": 1}])
    assert [row["n"] for row in rows_of(topic)] == [7, None, 1]
    assert topic.schema.names == ["id", "n", "price", "at"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", "x", 'the default of "c": column "c" expects int, got \'x\' (str)'),
        ("int", 2**40, 'the default of "c": column "c" expects int, got 1099511627776 (int)'),
        ("binary", b"x", "a column of type binary cannot have the default b'x'"),
        ("double", math.nan, "a column of type double cannot have the default nan"),
    ],
)
def test_a_default_that_is_no_value_of_its_column_is_refused(topic, kind, value, expected):
    with pytest.raises(InvalidTopic) as error:
        topic.evolve(f"{START}, c {kind}", {"c": value})
    assert expected in error.value.what
    assert len(topic.schemas) == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "ä 𝄞"),
        ("boolean", False),
        ("bigint", -(2**63)),
        ("double", -0.5),
        ("decimal(38,10)", Decimal("1234567890123456789012345678.0123456789")),
        ("date", date(2026, 2, 28)),
        ("timestamp", datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)),
        ("timestamp_ntz", datetime(2026, 1, 1, 12, 30)),  # noqa: DTZ001 - it has none
        ("struct<a:int,b:array<date>>", {"a": 1, "b": [date(2026, 1, 1), None]}),
    ],
)
def test_a_default_of_any_kind_comes_back_as_it_was_given(topic, again, kind, value):
    topic.evolve(f"{START}, c {kind}", {"c": value})
    topic.append([{"id": 3}])
    for seen in (topic, again().topic("a")):
        assert [row["c"] for row in rows_of(seen)] == [value] * 3


def test_times_and_offsets_are_found_across_schemas(topic):
    topic.evolve(f"{START}, city string")
    topic.append([{"id": 3, "at": "2026-01-05"}])
    assert topic.offsets_at("2026-01-02") == {0: 1}
    assert topic.offsets_at("2026-01-03") == {0: 2}
    assert topic.max_time(0, 1, 2) == 1_767_312_000_000_000


def test_what_did_not_change_is_not_copied(log):
    topic = log.create_topic("w", "a bigint, b int, c string")
    topic.append([{"a": n, "b": n, "c": "text"} for n in range(1000)])
    before = next(topic.batches(0, 0, 1000))
    topic.evolve("a bigint, b bigint, c string, d int")
    after = next(topic.batches(0, 0, 1000))
    for name in ("a", "c"):
        buffers = zip(before.column(name).buffers(), after.column(name).buffers(), strict=True)
        assert all(ours is theirs is None or ours.address == theirs.address for ours, theirs in buffers)
    assert after.column("b").type == pa.int64()


def test_a_reader_that_is_under_way_keeps_its_columns(again):
    with again(segment_bytes=2_000) as small:
        topic = small.create_topic("w", "n int")
        for n in range(20):
            topic.append([{"n": n}] * 10)
        running = topic.batches(0, 0, 200)
        first = next(running)
        again().topic("w").evolve("n bigint, x int")
        rest = list(running)
        assert {batch.schema for batch in rest} == {first.schema}
        assert topic.read(0, 0, 1).schema.field("n").type == pa.int64()


def test_a_topic_of_another_schema_says_how_it_can_take_it(log):
    with pytest.raises(TopicExists) as error:
        log.create_topic("a", f"{START}, city string")
    assert error.value.detail == f"Its schema differs: {START}."
    assert f'.topic("a").evolve("{START}, city string")' in error.value.hint
    with pytest.raises(TopicExists) as error:
        log.create_topic("a", "id string")
    assert "evolve" not in error.value.hint
    with pytest.raises(TopicExists) as error:
        log.create_topic("a", START)
    assert error.value.detail == ""


def test_evolving_while_others_append_and_read_loses_nothing(tmp_path):
    """Appenders with an old and a new view of the schema, and a reader, at the same time."""
    with Log(tmp_path, fsync=False) as log, Log(tmp_path, fsync=False) as other:
        topic = log.create_topic("w", "n int")
        done = threading.Event()
        found = []

        def append():
            mine = other.topic("w")
            for n in range(600):
                mine.append([{"n": n}])
            done.set()

        def read():
            at, mine = 0, other.topic("w")
            while at < 600:
                table = mine.read(0, at, 1000)
                found.extend(table.column("n").to_pylist())
                at += table.num_rows

        threads = [threading.Thread(target=append), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        ddl = "n bigint"
        for number in range(20):
            ddl += f", c{number} int"
            topic.evolve(ddl, {f"c{number}": number})
        for thread in threads:
            thread.join()
        assert found == list(range(600))
        row = topic.read(0, 0, 1).to_pylist()[0]
        assert [row[f"c{number}"] for number in range(20)] == list(range(20))


def test_any_history_of_schemas_gives_what_was_appended(tmp_path):
    """Against a model: each record keeps its value, widened, and has the defaults of columns that were added later."""
    seed = 20260131
    dice = Random(seed)  # noqa: S311 - a test that replays
    widths = ["tinyint", "smallint", "int", "bigint", "decimal(25,3)"]
    for case in range(25):
        with Log(tmp_path / str(case), fsync=False, segment_bytes=dice.choice([700, 5_000])) as log:
            columns = {"a": 0}
            defaults = {}
            model = []
            topic = log.create_topic("w", "a tinyint")
            for _ in range(12):
                if dice.random() < 0.4:
                    name = dice.choice([*columns, f"c{len(columns)}"])
                    given = {} if name in columns or dice.random() < 0.5 else {name: dice.randrange(100)}
                    columns[name] = min(columns.get(name, -1) + 1, len(widths) - 1)
                    topic.evolve(", ".join(f"{n} {widths[w]}" for n, w in columns.items()), given)
                    defaults |= given
                row = {name: dice.randrange(100) for name in columns if dice.random() < 0.7}
                topic.append([row] * dice.randrange(1, 4))
                model += [row] * (topic.end_offsets()[0] - len(model))
                expected = [{name: old.get(name, defaults.get(name)) for name in columns} for old in model]
                assert rows_of(topic) == expected, f"seed {seed}, case {case}"


def test_compaction_keeps_what_records_of_all_schemas_say(log):
    """The last record of a key may be of an older schema than those around it."""
    with Log(log.path, fsync=False, segment_bytes=2_000) as small:
        topic = small.create_topic("k", "id int, v int", key="id", cleanup="compact")
        topic.append([{"id": n, "v": n} for n in range(6)])
        topic.evolve("id bigint, v bigint, w string", {"w": "old"})
        topic.append([{"id": n, "v": 2**40 + n, "w": "new"} for n in range(2)])
        topic.append([{"id": 2, "_deleted": True}])
        topic.evolve("id bigint, v decimal(25,1), w string, x int", {"x": 9})
        topic.append([{"id": 3, "x": None}])
        last = {row["id"]: row for row in rows_of(topic)}
        before = sorted(last.values(), key=lambda row: row["id"])
        assert [(row["w"], row["x"]) for row in before] == [
            ("new", 9), ("new", 9), (None, None), ("old", None), ("old", 9), ("old", 9),
        ]  # fmt: skip
        for _ in range(2):
            topic.compact()
            assert sorted(rows_of(topic), key=lambda row: row["id"]) == before
            topic.evolve(f"{to_ddl(topic.schema)}, y{len(topic.schemas)} int")
            before = [row | {name: None for name in topic.schema.names if name not in row} for row in before]
