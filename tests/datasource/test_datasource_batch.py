"""`spark.read.format("headrace")` and `df.write.format("headrace")`, as any PySpark program says it."""

from datetime import UTC, datetime

import pytest
from searching import SCHEMA, all_ids, ids, search

ODD = {
    "t": "tinyint", "i": "int", "f": "double", "d": "decimal(20,4)", "day": "date", "raw": "binary",
    "tags": "array<string>", "m": "map<string,array<int>>", "s": "struct<a:int,b:struct<c:string>>",
    "clock": "timestamp_ntz", "ok": "boolean",
}  # fmt: skip


def test_all_of_a_topic_is_read_without_registration(read, searches):
    frame = read(subscribe="searches")
    assert frame.columns == ["id", "user", "at"]
    assert sorted(row.id for row in frame.collect()) == list(range(10))
    assert searches.partitions == 2


def test_every_type_comes_through_as_it_is(read, log):
    topic = log.create_topic("odd", ", ".join(f"{name} {kind}" for name, kind in ODD.items()))
    day = datetime(2026, 1, 31, 10, tzinfo=UTC)
    row = {
        "t": -1, "i": None, "f": 0.5, "d": 12, "day": day.date(), "raw": b"\x00\xff", "tags": ["a", None],
        "m": {"k": [1, None]}, "s": {"a": 1, "b": {"c": "x"}}, "clock": day.replace(tzinfo=None), "ok": True,
    }  # fmt: skip
    topic.append([row, dict.fromkeys(row)])
    frame = read(subscribe="odd")
    assert [kind.replace(" ", "") for _, kind in frame.dtypes] == list(ODD.values())
    found = [each.asDict(recursive=True) for each in frame.collect()]
    assert found == [row | {"raw": bytearray(b"\x00\xff")}, dict.fromkeys(row)]


def test_metadata_says_where_a_record_stands_and_what_was_deleted(read, log):
    topic = log.create_topic("users", SCHEMA, key="id", event_time="at", partitions=2)
    at = topic.append([search(1) | {"_headers": {"h": "x"}}, {"id": 1, "at": 120_000, "_deleted": True}])
    number = next(iter(at))
    first, second = read(subscribe="users", includeMetadata="true").orderBy("_offset").collect()
    assert first.asDict() == {
        "id": 1, "user": "u1", "at": first.at, "_topic": "users", "_partition": number, "_offset": 0,
        "_time": first.at, "_deleted": False, "_headers": {"h": "x"},
    }  # fmt: skip
    assert (second.user, second._deleted, second._headers) == (None, True, None)


@pytest.mark.usefixtures("searches")
def test_columns_are_chosen_by_name_or_by_a_schema(read, spark, log):
    assert read(subscribe="searches", columns="user, _offset").columns == ["user", "_offset"]
    given = spark.read.format("headrace").option("path", str(log.path)).option("subscribe", "searches")
    assert given.schema("user string").load().where("user = 'u1'").count() == 3
    for schema, expected in (
        ("usr string", 'Did you mean "user"?'),
        ("id string", 'the column "id" is of type bigint'),
    ):
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as error:
            given.schema(schema).load().collect()
        assert expected in str(error.value)


@pytest.mark.usefixtures("searches")
def test_an_error_of_ours_arrives_with_its_hint(read):
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as error:
        read(subscribe="serches")
    assert "[UNKNOWN_TOPIC] the log" in str(error.value)
    assert 'Hint: Did you mean "searches"?' in str(error.value)
    for options, expected in (
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        ({"endingOffsets": '{"searches": {"0": 1, "1": 0}}', "startingOffsets": "latest"}, "before it begins at 5"),
    ):
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as error:
            read(subscribe="searches", **options).collect()
        assert expected in str(error.value)


def test_topics_of_one_pattern_are_united_by_column(read, log):
    log.create_topic("web_a", "id bigint, user string").append([{"id": 1, "user": "x"}])
    log.create_topic("web_b", "id bigint, price double").append([{"id": 2, "price": 0.5}])
    rows = read(subscribePattern="web_.*", columns="_topic,id,user,price").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [("web_a", 1, "x", None), ("web_b", 2, None, 0.5)]
    log.create_topic("web_c", "id string")
    with pytest.raises(Exception, match="TOPIC_DIFFERS") as error:
        read(subscribePattern="web_.*")
    assert 'the column "id" is bigint in the first and string in the second' in str(error.value)


@pytest.mark.usefixtures("searches")
def test_filters_reach_the_reader_where_spark_pushes_them(spark, log):
    """The answer is the same, and the tasks read less."""
    pushing = spark.newSession()
    pushing.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    condition = "at >= timestamp'1970-01-01 00:06:00Z' and user in ('u0', 'u2') and id <> 8"
    found = []
    for session in (spark, pushing):
        source = session.read.format("headrace").option("path", str(log.path)).option("subscribe", "searches")
        frame = source.option("includeMetadata", "true").load()
        assert sorted(row.id for row in frame.where(condition).collect()) == [6, 9]
        assert frame.where("_partition = 1 and _offset >= 3").count() == 2
        scanned = frame.where(condition)._jdf.queryExecution().executedPlan()
        scanned.execute().count()
        found.append(scanned.collectLeaves().apply(0).metrics().apply("numOutputRows").value())
    assert found == [10, 2]


def test_many_rows_are_read_by_several_tasks(read, log):
    topic = log.create_topic("many", "id bigint")
    topic.append([{"id": n} for n in range(30_000)])
    assert read(subscribe="many").rdd.getNumPartitions() == 1
    frame = read(subscribe="many", minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.selectExpr("sum(id)", "count(distinct id)").first() == (30_000 * 29_999 // 2, 30_000)


def test_a_frame_is_appended_and_what_does_not_fit_is_refused_before_any_task_runs(spark, read, log, searches):
    to = log.create_topic("copy", SCHEMA, partitions=3, key="id", event_time="at")

    def write(frame, mode="append", **options):
        frame.write.format("headrace").mode(mode).options(**{"path": str(log.path), "topic": "copy"} | options).save()

    write(read(subscribe="searches"))
    assert all_ids(to) == list(range(10))
    assert list((log.path / "spark" / "copy").iterdir()) == []
    frame = read(subscribe="searches")
    for changed, options, expected in (
        (frame, {"mode": "overwrite"}, "a topic only grows"),
        (frame, {"topic": "cpy"}, 'Did you mean "copy"?'),
        (frame.withColumnRenamed("user", "usr"), {}, 'there is no column "usr"'),
        (frame.selectExpr("cast(id as string) as id"), {}, 'column "id" expects bigint'),
        (frame, {"partition": "1"}, 'writing a topic has no option "partition"'),
        (frame.selectExpr("cast(null as bigint) as id"), {}, 'column "id" is null'),
    ):
        with pytest.raises(Exception, match=r"\[[A-Z_]+\]") as error:
            write(changed, **options)
        assert expected in str(error.value)
    assert sum(to.end_offsets().values()) == 10
    assert searches.end_offsets() == {0: 5, 1: 5}
    assert spark.range(1).count() == 1


def test_a_numbered_batch_is_appended_once(read, log):
    to = log.create_topic("copy", SCHEMA)

    def write(first, sequence):
        frame = read(subscribe="searches").where(f"id >= {first}")
        options = {"path": str(log.path), "topic": "copy", "producer": "job", "sequence": str(sequence)}
        frame.write.format("headrace").mode("append").options(**options).save()

    log.create_topic("searches", SCHEMA).append([search(n) for n in range(4)])
    for first, sequence in ((2, 1), (0, 1), (3, 2), (0, 0)):
        write(first, sequence)
    assert ids(to) == [[2, 3, 3]]


def test_tombstones_are_written_as_the_log_writes_them(spark, log):
    to = log.create_topic("users", SCHEMA, key="id", event_time="at", cleanup="compact")
    frame = spark.sql("select 1L as id, 'x' as user, timestamp'2026-01-01' as at, true as _deleted")
    frame.write.format("headrace").mode("append").option("path", str(log.path)).option("topic", "users").save()
    assert to.read(0, 0, 9).select(["id", "user", "_deleted"]).to_pylist() == [
        {"id": 1, "user": None, "_deleted": True}
    ]


def test_private_columns_are_written_sealed_and_read_until_they_are_forgotten(read, spark, log):
    topic = log.create_topic("mail", "id bigint, email string", private={"email": "id"})
    frame = spark.createDataFrame([(n, f"{n}@secret.example") for n in range(3)], "id bigint, email string")
    frame.write.format("headrace").mode("append").options(path=str(log.path), topic="mail").save()
    topic.forget(1)
    assert not any(b"secret.example" in path.read_bytes() for path in log.path.rglob("*") if path.is_file())
    found = {row.id: row.email for row in read(subscribe="mail").where("email is null or email > '1'").collect()}
    assert found == {1: None, 2: "2@secret.example"}
