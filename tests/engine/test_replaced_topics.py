"""On both carriers: a topic that is replaced is noticed at the start and while the app runs."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.outside import OffsetsBeyondEnd, OutputLost, SourceReplaced


def two_lines():
    app = hr.App("two", storage="unused", shards=1)
    rows = app.stream("in", "id int")
    rows.to_topic("out")
    rows.to_view("v")
    return app


@pytest.mark.on_spark
def test_a_topic_that_is_replaced_is_noticed(drive, tmp_path):
    driver = drive(two_lines(), storage=tmp_path / "app")
    driver.send("in", {"id": 1}, {"id": 2})
    driver.run()
    log = driver.log
    log.delete_topic("in")
    log.create_topic("in", "id int").append([{"id": n} for n in range(9)])
    with pytest.raises(SourceReplaced, match='the topic "in" was deleted and created again'):
        driver.step()
    for _ in range(2):
        with pytest.raises(SourceReplaced, match="headrace reset FILE"):
            driver.restart()


def test_an_output_that_is_gone_and_an_input_that_is_older_are_noticed_at_the_start(drive, tmp_path):
    driver = drive(two_lines(), storage=tmp_path / "app")
    driver.send("in", {"id": 1}, {"id": 2})
    driver.run()
    log = driver.log
    head, segment = (tmp_path / f"app/log/topics/in/0/{name}" for name in ("head", f"{0:020d}.segment"))
    kept = head.read_bytes(), segment.read_bytes()
    driver.send("in", {"id": 3})
    driver.run()
    log.close()
    newer = head.read_bytes(), segment.read_bytes()
    head.write_bytes(kept[0])
    segment.write_bytes(kept[1])
    with pytest.raises(OffsetsBeyondEnd, match="has read up to offset 3, and it ends at offset 2"):
        driver.restart()
    head.write_bytes(newer[0])
    segment.write_bytes(newer[1])
    driver.restart()
    driver.log.delete_topic("out")
    with pytest.raises(OutputLost, match='the topic "out" no longer has epoch'):
        driver.restart()
