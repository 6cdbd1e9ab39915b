"""Every view of a query holds what batch Spark gives over the rows of that moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sql_oracle import BEGIN, CLICKS, EVERY, Batch, World, application, arrow, differences
from tpch import QUERIES

from headrace.testing import Driver

SEED = 8  # of rows for which nearly all queries give some


@pytest.mark.spark
def test_every_query_gives_what_batch_spark_gives_after_epochs_of_changes(spark):
    """Inserts, updates and deletes between them; scripts/sql_against_spark.py compares after each, and takes more."""
    batch = Batch(spark)
    world = World(seed=SEED)
    try:
        for _ in range(2):
            world.step()
        batch.load(world.tables())
        with ThreadPoolExecutor(2) as both:
            theirs = dict(zip(EVERY, both.map(batch.rows, EVERY.values()), strict=True))
        found = [differences(name, world.driver.view(name), rows) for name, rows in theirs.items()]
    finally:
        world.close()
    assert not any(found), "\n".join(filter(None, found))
    assert len(EVERY) >= 60
    assert len(QUERIES) == 22
    empty = {name for name, rows in theirs.items() if not rows}
    assert len(empty) <= 3, empty


@pytest.mark.spark
def test_windows_and_sessions_have_sparks_bounds(spark):
    """Rows on the edge of a window, and rows of a session exactly a gap apart."""
    rows = [{"search_id": "a", "url": "x", "user": "ann", "at": BEGIN + timedelta(seconds=s)} for s in (0, 15, 31, 60)]
    batch = Batch(spark)
    batch.load({"clicks": arrow(CLICKS, rows)})
    names = ["minutes", "hopping_offset", "sessions"]
    with Driver(application({name: EVERY[name] for name in names})) as driver:
        driver.send("clicks", *rows)
        driver.step()
        found = [differences(name, driver.view(name), batch.rows(EVERY[name])) for name in names]
    assert not any(found), "\n".join(filter(None, found))
