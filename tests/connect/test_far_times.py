"""An event time at the end of all times is a dead letter: the windows around it would have bounds that are no times."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import Driver


@pytest.mark.parametrize("far", ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00"])
@pytest.mark.parametrize("kind", ["stream", "table"])
def test_an_event_of_the_end_of_time_stops_nothing(tmp_path, far, kind):
    app = hr.App("far", storage=tmp_path)
    if kind == "stream":
        rows = app.stream("t", "k string, at timestamp", event_time="at")
    else:
        rows = app.table("t", "k string, at timestamp", key="k", event_time="at")
    rows.group_by("k").window(hr.tumbling("1 minute", grace="0 s")).agg(n="count(*)").named("counts").to_view("v")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "far", "at": far}, {"k": "near", "at": "2026-01-01 10:00"}, {"k": "none", "at": None})
        driver.run()
        assert [row["k"] for row in driver.view("v")] == ["near"]
        reasons = sorted(row["reason"] for row in driver.read("t.dead"))
        assert reasons == ['the event time "at" is not in the years 2 to 9989', 'the event time "at" is null']
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "later", "at": "2026-01-01 10:05"})
        driver.run()
        assert [row["k"] for row in driver.view("v")] == ["later", "near"]
