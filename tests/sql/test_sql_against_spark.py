"""Every view of a query holds what batch Spark gives over the rows of that moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sql_oracle import EVERY, Batch, World, differences
from tpch import QUERIES


@pytest.mark.spark
def test_every_query_gives_what_batch_spark_gives_after_epochs_of_changes(spark):
    """Inserts, updates and deletes between them; scripts/sql_against_spark.py compares after each, and takes more."""
    batch = Batch(spark)
    world = World(seed=7)
    try:
        for _ in range(3):
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
