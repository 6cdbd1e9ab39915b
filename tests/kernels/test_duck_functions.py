"""Functions in SQL, of databases beside each other."""

import gc

import pyarrow.compute as pc

from headrace.kernels.duck import IN_MEMORY, Duck


def test_a_function_outlives_the_connection_that_defined_it():
    """DuckDB keeps it for all connections to a database, but Python's object only for the one that defined it."""
    host = Duck()
    first = Duck(IN_MEMORY, host=host)
    first.define("more", lambda numbers: pc.add(numbers, 1), ["BIGINT"], "BIGINT")
    assert first.rows("SELECT more(1)") == [(2,)]
    first.close()
    del first
    gc.collect()
    others = [lambda number=number: number for number in range(100_000)]  # in the memory that was freed
    second = Duck(IN_MEMORY, host=host)
    second.define("more", lambda numbers: pc.add(numbers, 2), ["BIGINT"], "BIGINT")
    assert second.rows("SELECT more(1)") == [(3,)]
    assert len(others) == 100_000
