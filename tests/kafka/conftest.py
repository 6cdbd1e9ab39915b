"""Three brokers for the tests of this folder; one broker is for all folders: see tests/brokers.py."""

import pytest

from brokers import for_one_test
from headrace.connect.kafka.client import administration


@pytest.fixture(autouse=True)
def one_broker_hears_at_once(request, monkeypatch):
    """Of one broker, a topic that is missing is known to be so at once."""
    if "cluster" not in request.fixturenames and not request.path.name.startswith("test_administration"):
        monkeypatch.setattr(administration, "MISSING_SECONDS", 0.3)


@pytest.fixture
def cluster(cluster_of_the_run):
    """Three brokers that the test may kill, pause and restart; afterwards they are started again. For `prove`."""
    cluster_of_the_run.heal()
    yield for_one_test(cluster_of_the_run)
    for each in cluster_of_the_run.brokers:
        cluster_of_the_run.resume(each)
