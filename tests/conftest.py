"""What all tests share: a Spark session a process, and the real data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import artemis_servers
import brokers
import cassandra_servers
import kinesis_servers
import mariadb_servers
import mqtt_servers
import nats_servers
import opensearch_servers
import postgres_servers
import pubsub_servers
import pulsar_servers
import rabbitmq_servers
import redis_servers
import s3_servers
from artemis_servers import artemis, artemis_of_the_run  # noqa: F401 - fixtures
from brokers import (  # noqa: F401 - fixtures
    breakable,
    breakable_of_the_run,
    broker,
    broker_of_the_run,
    cluster_of_the_run,
    registry,
    registry_of_the_run,
)
from cassandra_servers import cassandra_of_the_run  # noqa: F401 - a fixture
from kinesis_servers import kinesis_of_the_run  # noqa: F401 - a fixture
from mariadb_servers import (  # noqa: F401 - fixtures
    breakable_mariadb_of_the_run,
    breakable_schema,
    lonely_schema,
    mariadb_of_the_run,
    schema,
)
from mqtt_servers import mosquitto_of_the_run  # noqa: F401 - a fixture
from nats_servers import nats_of_the_run  # noqa: F401 - a fixture
from opensearch_servers import opensearch_of_the_run  # noqa: F401 - a fixture
from postgres_servers import (  # noqa: F401 - fixtures
    breakable_database,
    breakable_postgres_of_the_run,
    database,
    postgres_of_the_run,
)
from pubsub_servers import pubsub_of_the_run  # noqa: F401 - a fixture
from pulsar_servers import pulsar_of_the_run  # noqa: F401 - a fixture
from rabbitmq_servers import rabbit, rabbitmq_of_the_run  # noqa: F401 - fixtures
from redis_servers import redis_of_the_run  # noqa: F401 - a fixture
from s3_servers import s3_of_the_run  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).parent.parent
SERVERS = {
    "kafka": brokers.SERVERS,
    "postgres": postgres_servers.SERVERS,
    "mariadb": mariadb_servers.SERVERS,
    "redis": redis_servers.SERVERS,
    "cassandra": cassandra_servers.SERVERS,
    "opensearch": opensearch_servers.SERVERS,
    "rabbitmq": rabbitmq_servers.SERVERS,
    "artemis": artemis_servers.SERVERS,
    "servicebus": {"servicebus_of_the_run"},
    "nats": nats_servers.SERVERS,
    "pubsub": pubsub_servers.SERVERS,
    "pulsar": pulsar_servers.SERVERS,
    "kinesis": kinesis_servers.SERVERS,
    "s3": s3_servers.SERVERS,
    "mqtt": mqtt_servers.SERVERS,
}
"""The fixtures of real servers by the group of xdist whose tests use them: one worker runs a group."""

# a slow machine is no failure; a failure prints what replays it
settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=10
)
settings.register_profile("prove", settings.get_profile("house"), max_examples=1000)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--prove` runs the long cases, and random tests with many examples, and nothing else: see `make prove`."""
    parser.addoption("--prove", action="store_true", help="run what is marked `prove`, and random tests for longer")


def pytest_configure(config: pytest.Config) -> None:
    """Choose what test modules read when they are imported, or Spark when it starts: `--prove` draws many examples."""
    from scripts.broker.jars import JAVA_OPTIONS

    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(JAVA_OPTIONS))
    if config.getoption("--prove"):
        settings.load_profile("prove")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """Write out what is no UTF-8 in a report, as in odd names of files: a worker that cannot send it ends the run."""
    return _printable((yield))


def _printable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {key: _printable(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(map(_printable, value))
        case _:
            return value


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of this process: starting one takes seconds. Tests change no setting of it."""
    from headrace.engine.spark.session import session

    made = session(master="local[2]")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of real data: $HEADRACE_DATA, else `shared/data` beside the checkout."""
    folder = Path(os.environ.get("HEADRACE_DATA") or CHECKOUT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"there is no real data in {folder}; HEADRACE_DATA names another folder")
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose between fast and long cases, and keep what needs Spark in two workers, so that they share two sessions.

    A test of both carriers runs in process; on Spark it is a long case, unless `on_spark` says that it is a fast one
    (with arguments: its cases whose ids contain one of them). Long cases run with `--prove`, or when the command line
    names a test or the marker. A test that starts its own Spark in another process may have its own `xdist_group`.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.get_closest_marker("spark") is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("spark, batch" if _compares_with_batch(item) else "spark"))
        for group, fixtures in SERVERS.items():
            if fixtures & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group(group))
        if _carried_by_spark(item) and not _fast_on_spark(item):
            item.add_marker("prove")
    _choose(config, items)


def _compares_with_batch(item: pytest.Item) -> bool:
    """Whether a test is in a folder that asks Spark for batch results: about half of what needs Spark."""
    return not {"expressions", "law", "sql", "datasource"}.isdisjoint(item.path.parts)


def _carried_by_spark(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)
    return case is not None and "spark" in case.params.values()


def _fast_on_spark(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("on_spark")
    return marker is not None and (not marker.args or any(part in item.name for part in marker.args))


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    prove = config.getoption("--prove")
    if not prove and ("prove" in config.option.markexpr or any("::" in argument for argument in config.args)):
        return
    wanted = [item for item in items if (_is_long(item) or _is_random(item) if prove else not _is_long(item))]
    kept = set(wanted)
    if len(wanted) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("prove") is not None


def _is_random(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
