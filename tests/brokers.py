"""Kafka for tests: fixtures that every folder of tests may use. They skip, with the reason, where there can be none.

All processes of a run share the servers, which end with the last of them. Tests that use one are a group of xdist.
"""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scripts.broker.brokers import Kafka

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"broker_of_the_run", "breakable_of_the_run", "cluster_of_the_run", "registry_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@dataclass(frozen=True)
class Broker:
    """A cluster for one test: its topics have a prefix of their own.

    `kafka` starts, kills, pauses and restarts brokers (see scripts/broker/brokers.py), has addresses with SASL and TLS,
    and runs Kafka's own tools. `address` is for Headrace, `bootstrap` (host:port,…) for other clients, which write
    `prefix` before the names of topics.
    """

    kafka: Kafka
    prefix: str

    @property
    def address(self) -> str:
        return f"{self.kafka.address}?prefix={self.prefix}"

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    def topic(self, name: str) -> str:
        """Return the name in the cluster of a topic of this test."""
        return f"{self.prefix}{name}"


def run_folder(tmp_path_factory) -> Path:
    """Return the folder that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if own.name.startswith("popen-") else own


def kafka_of(root: Path, kind: str, brokers: int = 1) -> Kafka:
    """Return the run's cluster of a kind, started; skips the test if there can be none."""
    from scripts.broker.brokers import Kafka  # not above: most runs need no Kafka, and its client is slow to import
    from scripts.broker.jars import Unavailable
    from scripts.broker.servers import shared

    kafka = Kafka(shared(root, kind), brokers=brokers)
    try:
        kafka.start()
    except Unavailable as reason:
        kafka.servers.leave()
        pytest.skip(f"no Kafka: {reason}")
    return kafka


@pytest.fixture(scope="session")
def broker_of_the_run(tmp_path_factory):
    kafka = kafka_of(run_folder(tmp_path_factory), "kafka")
    yield kafka
    kafka.servers.leave()


@pytest.fixture(scope="session")
def breakable_of_the_run(tmp_path_factory):
    kafka = kafka_of(run_folder(tmp_path_factory), "breakable")
    yield kafka
    kafka.servers.leave()


@pytest.fixture(scope="session")
def cluster_of_the_run(tmp_path_factory):
    kafka = kafka_of(run_folder(tmp_path_factory), "cluster", brokers=3)
    yield kafka
    kafka.servers.leave()


@pytest.fixture
def broker(broker_of_the_run):
    """One broker, shared with all tests of the run: do not kill it."""
    return for_one_test(broker_of_the_run)


@pytest.fixture
def breakable(breakable_of_the_run):
    """One broker that the test may kill, pause and restart; afterwards it is started again."""
    breakable_of_the_run.heal()
    yield for_one_test(breakable_of_the_run)
    breakable_of_the_run.resume()


@pytest.fixture(scope="session")
def registry_of_the_run(tmp_path_factory):
    from scripts.broker.jars import Unavailable
    from scripts.broker.registry import Registry
    from scripts.broker.servers import shared

    registry = Registry(shared(run_folder(tmp_path_factory), "registry"))
    try:
        registry.start()
    except Unavailable as reason:
        registry.servers.leave()
        pytest.skip(f"no schema registry: {reason}")
    yield registry
    registry.servers.leave()


@pytest.fixture
def registry(registry_of_the_run):
    """Return the URL of a schema registry that speaks Confluent's API; tests share it, so choose new subjects."""
    return registry_of_the_run.url


def for_one_test(kafka: Kafka) -> Broker:
    """Return a cluster with a prefix for topics that no other test has."""
    return Broker(kafka, f"t{uuid.uuid4().hex[:8]}.")
