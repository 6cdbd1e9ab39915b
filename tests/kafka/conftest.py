"""Three brokers for the tests of this folder; one broker is for all folders: see tests/brokers.py."""

import pytest

from brokers import for_one_test


@pytest.fixture
def cluster(cluster_of_the_run):
    """Three brokers that the test may kill, pause and restart; afterwards they are started again. For `prove`."""
    cluster_of_the_run.heal()
    yield for_one_test(cluster_of_the_run)
    for each in cluster_of_the_run.brokers:
        cluster_of_the_run.resume(each)
