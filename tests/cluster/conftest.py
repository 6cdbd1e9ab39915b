"""One cluster for all tests of this folder."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Return a master with two workers."""
    if not sys.platform.startswith("linux"):
        pytest.skip("finds the executors in /proc")
    from standalone import Cluster

    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()
