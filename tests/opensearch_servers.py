"""OpenSearch for tests: a fixture for every folder of tests. It skips, with the reason, where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from brokers import run_folder

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"opensearch_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def opensearch_of_the_run(tmp_path_factory):
    """An OpenSearch that all tests of the run share; a test may kill it, and starts it again."""
    pytest.importorskip("opensearchpy")
    from scripts.broker.jars import Unavailable
    from scripts.broker.servers import shared
    from scripts.servers.opensearch import OpenSearch

    server = OpenSearch(shared(run_folder(tmp_path_factory), "opensearch"))
    try:
        server.start()
    except Unavailable as reason:
        server.servers.leave()
        pytest.skip(f"no OpenSearch: {reason}")
    yield server
    server.servers.leave()
