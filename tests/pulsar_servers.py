"""Pulsar for tests: a fixture for every folder of tests. It skips, with the reason, where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from brokers import run_folder

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"pulsar_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def pulsar_of_the_run(tmp_path_factory):
    """A Pulsar that all tests of the run share; a test may kill it, and starts it again."""
    from scripts.broker.jars import Unavailable
    from scripts.broker.servers import shared
    from scripts.servers.pulsar import Pulsar

    server = Pulsar(shared(run_folder(tmp_path_factory), "pulsar"))
    try:
        server.start()
    except Unavailable as reason:
        server.servers.leave()
        pytest.skip(f"no Pulsar: {reason}")
    yield server
    server.servers.leave()
