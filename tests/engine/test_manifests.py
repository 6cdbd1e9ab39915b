"""The reports of an epoch's tasks on their way to the driver, with Spark's plan of the batch or without another."""

import pytest
from pyspark.sql.classic.dataframe import DataFrame

import headrace as hr
from headrace.engine.spark import blobs
from headrace.engine.spark.manifests import manifest, manifest_of_batch
from headrace.kernels.counts import Counts
from headrace.kernels.task import Report, StagedFile
from headrace.testing import Driver

pytestmark = pytest.mark.spark


def reports_of_a_task():
    staged = StagedFile(sink="out ⏚", file="out.0.00000.a.rows", rows=1 << 40)
    counted = Report(shard=1, staged=[staged], counts={"step": Counts(rows_in=7)}, spent={"read": 0.25})
    return [Report(times={"t": {"0": -1}}), counted]


def test_a_batch_that_spark_planned_gives_what_collect_gives(spark, tmp_path):
    reports, found = reports_of_a_task(), []
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("one line")

    def made(batches):
        for _ in batches:
            yield blobs.manifest(reports)

    def look(batch, _):
        found.append((manifest_of_batch(batch), manifest(batch)))

    frame = spark.readStream.text(str(tmp_path / "in")).mapInArrow(made, blobs.DDL)
    query = frame.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert found == [(reports, reports)]


def test_a_small_epoch_is_no_query_of_its_own(monkeypatch):
    app = hr.App("one")
    app.stream("rows", "k string, v bigint").group_by("k").agg(n="count(*)", total="sum(v)").to_view("sums")
    with Driver(app, carrier="spark") as driver:
        driver.send("rows", {"k": "a", "v": 1})
        driver.step()

        def refused(frame):
            raise AssertionError(frame)

        monkeypatch.setattr(DataFrame, "collect", refused)
        driver.send("rows", {"k": "a", "v": 2}, {"k": None, "v": None})
        driver.step()
        assert {(row["k"], row["n"], row["total"]) for row in driver.view("sums")} == {("a", 2, 3), (None, 1, None)}


def test_a_frame_that_is_no_planned_batch_is_collected(spark):
    reports = reports_of_a_task()
    row = blobs.manifest(reports).to_pylist()
    assert manifest_of_batch(spark.createDataFrame(row, blobs.DDL)) == reports
