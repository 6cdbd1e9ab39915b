"""The topics of an app that runs are cleaned beside its epochs."""

import logging

import pytest
from awaiting import until

import headrace as hr
from headrace.connect.embedded import EmbeddedTopics
from headrace.engine.operation.cleaning import Cleaning


@pytest.fixture
def log(tmp_path):
    with hr.Log(tmp_path / "log", segment_bytes=2_000) as made:
        yield made


def test_a_changelog_is_compacted_while_it_is_appended_to(log):
    topic = log.create_topic("counts", "k string, n bigint", key="k", cleanup="compact", partitions=1)
    cleaning = Cleaning(EmbeddedTopics(log, partitions=1, fault=print), ["counts", "counts", "missing"], every=0.001)
    try:
        for n in range(200):
            topic.append([{"k": "a", "n": n}, {"k": f"only {n}", "n": n}])
        assert until(lambda: sum(batch.num_rows for batch in topic.batches(0, *bounds(topic))) < 300)
    finally:
        cleaning.stop()
    rows = topic.read(0, bounds(topic)[0], 1_000).to_pylist()
    assert {row["k"]: row["n"] for row in rows} == {"a": 199, **{f"only {n}": n for n in range(200)}}


def test_what_cannot_be_cleaned_is_said_once_and_tried_again(log, tmp_path, caplog):
    archive = tmp_path / "archive"
    archive.mkdir()
    topic = log.create_topic("t", "v bigint", partitions=1, archive=str(archive))
    archive.rmdir()
    for n in range(100):
        topic.append([{"v": n}])
    with caplog.at_level(logging.WARNING, logger="headrace.engine"):
        cleaning = Cleaning(EmbeddedTopics(log, partitions=1, fault=print), ["t"], every=0.001)
        try:
            assert until(lambda: caplog.records)
            archive.mkdir()
            assert until(lambda: any(archive.rglob("*.segment")))
        finally:
            cleaning.stop()
    assert len(caplog.records) == 1
    assert "ARCHIVE_MISSING" in caplog.text


def bounds(topic):
    return topic.start_offsets()[0], topic.end_offsets()[0]
