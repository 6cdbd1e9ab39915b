"""`readStream` and `writeStream`: restarted in the middle, nothing is lost and nothing is there twice."""

import json

import pytest
from searching import SCHEMA, all_ids, search

from budget import fast

MANY = 60


@pytest.fixture
def copied(log):
    return log.create_topic("copied", SCHEMA, partitions=2, key="id", event_time="at")


def batches(query):
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_query_goes_on_where_it_stopped(run, searches, copied):
    query = run("searches", "copied", maxOffsetsPerTrigger="4")
    assert batches(query) == [4, 4, 2]
    assert all_ids(copied) == list(range(10))
    assert json.loads(query.lastProgress.sources[0].endOffset) == {"searches": {"0": 5, "1": 5}}
    searches.append([search(n) for n in range(10, 15)], partition=1)
    run("searches", "copied")
    assert all_ids(copied) == list(range(15))


def test_a_micro_batch_that_was_appended_and_not_checkpointed_is_not_appended_again(run, searches, copied, tmp_path):
    """The crash between the sink's commit and Spark's: Spark runs the batch again, and its rows are even others."""
    run("searches", "copied", maxOffsetsPerTrigger="4")
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in [commits / str(last), commits / f".{last}.crc"]:
        path.unlink(missing_ok=True)
    searches.append([search(10)], partition=0)
    query = run("searches", "copied", change=lambda frame: frame.selectExpr("id + 1000 * (id % 2) as id", "user", "at"))
    assert batches(query)[0] == 2
    assert all_ids(copied) == list(range(11))


def test_a_new_checkpoint_is_a_new_query(run, searches, copied):
    run("searches", "copied", "one")
    run("searches", "copied", "two")
    assert all_ids(copied) == sorted([*range(10), *range(10)])
    assert searches.end_offsets() == {0: 5, 1: 5}


def test_partitions_and_topics_that_appear_are_read_from_their_start(run, log, copied):
    log.create_topic("web_a", SCHEMA).append([search(1)])
    choose = {"subscribe": None, "subscribePattern": "web_.*"}

    def again():
        run("", "copied", **choose)

    again()
    log.create_topic("web_b", SCHEMA).append([search(2)])
    log.topic("web_a").append([search(3)])
    again()
    assert all_ids(copied) == [1, 2, 3]


@pytest.mark.parametrize("fail", fast("true", of=["true", "false"]))
def test_a_topic_that_was_made_anew_is_lost_data_unless_that_is_accepted(run, log, copied, fail):
    log.create_topic("t", SCHEMA).append([search(n) for n in range(5)])
    run("t", "copied")
    log.delete_topic("t")
    log.create_topic("t", SCHEMA).append([search(n) for n in range(50, 52)])
    if fail == "true":
        with pytest.raises(Exception, match="STREAM_FAILED") as error:
            run("t", "copied", failOnDataLoss=fail)
        assert '[DATA_LOSS] topic "t", partition 0 is to be read at offset 5' in str(error.value)
        return
    run("t", "copied", failOnDataLoss=fail)
    assert all_ids(copied) == [0, 1, 2, 3, 4, 50, 51]


@pytest.mark.usefixtures("searches", "copied")
def test_what_a_stream_cannot_have_is_said(run, spark, log, tmp_path):
    with pytest.raises(Exception, match="INVALID_OPTION") as error:
        run("searches", "copied", endingOffsets="latest")
    assert "a stream has no end" in str(error.value)
    frame = spark.readStream.format("headrace").option("path", str(log.path)).option("subscribe", "searches").load()
    writer = frame.writeStream.format("headrace").option("path", str(log.path)).option("topic", "copied")
    writer = writer.option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="INVALID_OPTION") as error:
        writer.option("producer", "p").option("sequence", "1").start().awaitTermination()
    assert "a stream has an identity of its own" in str(error.value)


@pytest.mark.usefixtures("searches")
def test_tables_of_spark_are_written_as_upserts_by_numbered_batches(run, spark, log, tmp_path):
    """Spark gives sinks in Python no update mode, so the way is foreachBatch; a batch run twice is appended once."""
    to = log.create_topic("by_user", "user string, n bigint", key="user", cleanup="compact")
    with pytest.raises(Exception, match="INVALID_OPTION") as error:
        run("searches", "by_user", change=_counts, mode="complete")
    assert "a topic only grows" in str(error.value)
    assert 'write upserts in foreachBatch with .outputMode("update")' in str(error.value)

    def twice(frame, number):
        options = {"path": str(log.path), "topic": "by_user", "producer": "counts", "sequence": str(number)}
        for _ in range(2):
            frame.write.format("headrace").mode("append").options(**options).save()

    source = spark.readStream.format("headrace").option("path", str(log.path)).option("subscribe", "searches")
    frame = _counts(source.option("startingOffsets", "earliest").load())
    writer = frame.writeStream.outputMode("update").foreachBatch(twice).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "upserts")).start().awaitTermination()
    found = [(row["user"], row["n"]) for row in to.read(0, 0, 99).to_pylist()]
    assert sorted(found) == [("u0", 4), ("u1", 3), ("u2", 3)]


def _counts(frame):
    return frame.groupBy("user").count().withColumnRenamed("count", "n")
