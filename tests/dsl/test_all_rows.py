"""Verbs over all rows of a step, without `group_by`."""

from __future__ import annotations

import headrace as hr
from headrace.testing import Driver


def test_the_first_rows_of_a_table_follow_its_changes():
    """`Table.top` is that of one group; a term without a direction counts down, and `explain` says so."""
    app = hr.App("tops")
    table = app.table("t", "id int, v int", key="id")
    table.top(2, "v", rank="place").named("best").to_view("best")
    table.top(1, "v asc").named("least").to_view("least")
    assert "by v desc nulls last" in str(app.explain())
    assert "by v asc nulls first" in str(app.explain())
    with Driver(app, shards=2) as driver:
        driver.send("t", *({"id": number, "v": number * 10} for number in range(1, 5)))
        driver.step()
        assert driver.view("best") == [{"id": 4, "v": 40, "place": 1}, {"id": 3, "v": 30, "place": 2}]
        assert driver.view("least") == [{"id": 1, "v": 10}]
        driver.delete("t", id=4)
        driver.delete("t", id=1)
        driver.step()
        assert driver.view("best") == [{"id": 3, "v": 30, "place": 1}, {"id": 2, "v": 20, "place": 2}]
        assert driver.view("least") == [{"id": 2, "v": 20}]


def test_an_aggregate_over_all_rows_needs_no_group_by():
    app = hr.App("totals")
    app.stream("s", "v int").agg(n="count(*)", total="sum(v)").to_view("facts")
    app.table("t", "id int, v int", key="id").agg(n="count(*)", total="sum(v)").to_view("rows")
    with Driver(app, shards=2) as driver:
        for _ in range(2):
            driver.send("s", {"v": 1}, {"v": 2})
            driver.send("t", {"id": 1, "v": 1}, {"id": 2, "v": 2})
            driver.step()
        assert driver.view("facts") == [{"n": 4, "total": 6}]
        assert driver.view("rows") == [{"n": 2, "total": 3}]
