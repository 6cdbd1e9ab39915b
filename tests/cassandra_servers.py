"""Cassandra for tests: a fixture for every folder of tests. It skips, with the reason, where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from brokers import run_folder

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"cassandra_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def cassandra_of_the_run(tmp_path_factory):
    """A Cassandra that all tests of the run share; a test may kill it, and starts it again."""
    pytest.importorskip("cassandra")
    from scripts.broker.jars import Unavailable
    from scripts.broker.servers import shared
    from scripts.servers.cassandra import Cassandra

    server = Cassandra(shared(run_folder(tmp_path_factory), "cassandra"))
    try:
        server.start()
    except Unavailable as reason:
        pytest.skip(f"no Cassandra: {reason}")
    yield server
    server.servers.leave()
