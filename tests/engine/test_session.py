"""The session of a query, and its checkpoint without child processes."""

import pytest

from headrace.engine.spark.quiet_files import SCHEME, quiet_location
from headrace.engine.spark.session import QUERY_SETTINGS, query_session, session

pytestmark = pytest.mark.spark


def test_a_session_that_exists_is_taken_as_it_is(spark):
    before = dict(spark.sparkContext.getConf().getAll())
    assert session(spark) is spark
    assert session(memory="1g", settings={"spark.sql.shuffle.partitions": "77"}) is spark
    assert dict(spark.sparkContext.getConf().getAll()) == before
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_query_session_leaves_the_users_settings_alone(spark):
    spark.conf.set("headrace.of.the.user", "kept")
    before = {name: spark.conf.get(name) for name in QUERY_SETTINGS}
    query = query_session(spark)
    assert {name: query.conf.get(name) for name in QUERY_SETTINGS} == dict(QUERY_SETTINGS)
    assert query.conf.get("headrace.of.the.user") == "kept"
    assert {name: spark.conf.get(name) for name in QUERY_SETTINGS} == before
    spark.conf.unset("headrace.of.the.user")


def run_to_the_end(spark, source, checkpoint):
    """Run a query over a folder of text files until it has read them all; returns its epochs."""
    epochs = []
    query = (
        spark.readStream.text(str(source))
        .writeStream.foreachBatch(lambda rows, epoch: epochs.append((epoch, [row.value for row in rows.collect()])))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return epochs


def test_a_checkpoint_goes_from_quiet_to_plain_and_back(spark, tmp_path):
    """Each run starts where the one before it stopped, whichever files wrote the checkpoint."""
    source, folder = tmp_path / "source", tmp_path / "check point%20"
    source.mkdir()
    quiet, plain = query_session(spark), query_session(spark)
    where = [quiet_location(quiet, folder), quiet_location(quiet, folder), str(folder), quiet_location(quiet, folder)]
    assert where[0] == f"{SCHEME}://{folder}"
    for epoch, location in enumerate(where):
        (source / f"{epoch}.txt").write_text(f"line {epoch}")
        used = plain if location == str(folder) else quiet
        assert run_to_the_end(used, source, location) == [(epoch, [f"line {epoch}"])]
    assert {"commits", "offsets", "metadata"} <= {entry.name for entry in folder.iterdir()}


def test_the_users_session_keeps_its_file_manager(spark, tmp_path):
    quiet_location(query_session(spark), tmp_path / "checkpoint")
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "unset") == "unset"


def test_a_place_that_cannot_be_quiet_stays_as_it_is(spark, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    query = query_session(spark)
    with caplog.at_level("INFO", logger="headrace"):
        assert quiet_location(query, "s3a://bucket/checkpoint") == "s3a://bucket/checkpoint"
        assert quiet_location(query, tmp_path / "file" / "below") == str(tmp_path / "file" / "below")
    assert "it is a URL, not a path" in caplog.text
    assert len(caplog.records) == 2
    assert query.conf.get("spark.sql.streaming.checkpointFileManagerClass", "unset") == "unset"
