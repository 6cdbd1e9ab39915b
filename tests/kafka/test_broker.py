"""The broker that tests use is Kafka as it is, and leaves nothing running."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from scripts.broker.jars import Unavailable, fetched

from headrace.connect.kafka import KafkaAddress

HOUSE = Path(__file__).parents[2]


def client(address):
    return AdminClient({**KafkaAddress.parse(address).configuration(), "log_level": 0})


def created(broker, name, **more):
    topic = broker.topic(name)
    admin = client(broker.address)
    admin.create_topics([NewTopic(topic, 1, **more)])[topic].result()
    return topic


def produce(broker, topic, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consumed(broker, topic, number):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])  # at once: a group that is joined waits for others
    found = [message.value() for message in consumer.consume(number, timeout=30)]
    consumer.close()
    return found


def test_a_record_goes_through_the_broker(broker):
    topic = created(broker, "orders")
    produce(broker, topic, b"one", b"two")
    assert consumed(broker, topic, 2) == [b"one", b"two"]


def test_tests_do_not_see_each_others_topics(broker):
    names = client(broker.address).list_topics(timeout=10).topics
    assert not [name for name in names if name.startswith(broker.prefix)]


def test_the_broker_writes_a_log(broker):
    assert "Kafka Server started" in (broker.kafka.folder / "broker1.log").read_text()


def test_kafkas_own_tools_run(broker):
    topic = created(broker, "payments")
    listed = broker.kafka.tool("org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", broker.bootstrap)
    assert topic in listed.splitlines()


def test_a_user_with_a_password_is_let_in_and_others_are_not(broker):
    assert client(broker.kafka.sasl_address("ada")).list_topics(timeout=10).brokers
    refused = []
    address = broker.kafka.sasl_address("ada", password="guessed")  # noqa: S106
    wrong = KafkaAddress.parse(address).configuration()
    admin = AdminClient({**wrong, "log_level": 0, "error_cb": refused.append})
    end = time.monotonic() + 30
    while not refused and time.monotonic() < end:
        admin.poll(0.1)
    assert refused[0].code() == KafkaError._AUTHENTICATION


def test_a_user_without_rights_may_do_nothing(broker):
    topic = created(broker, "secrets")
    assert topic not in client(broker.kafka.sasl_address("eve")).list_topics(timeout=10).topics


def test_tls_is_spoken(broker):
    assert client(broker.kafka.tls_address).list_topics(timeout=10).brokers


def test_a_killed_broker_comes_back_with_its_records(breakable):
    topic = created(breakable, "orders")
    produce(breakable, topic, b"one")
    breakable.kafka.kill()
    assert not breakable.kafka.servers.alive("broker1")
    breakable.kafka.restart()
    assert consumed(breakable, topic, 1) == [b"one"]


def test_a_paused_broker_answers_when_it_goes_on(breakable):
    topic = created(breakable, "orders")
    breakable.kafka.pause()
    producer = Producer({"bootstrap.servers": breakable.bootstrap, "log_level": 0})
    producer.produce(topic, b"one")
    assert producer.flush(0.5) == 1
    breakable.kafka.resume()
    assert producer.flush(30) == 0


@pytest.mark.prove
def test_three_brokers_lose_one_and_take_records_on(cluster):
    topic = created(cluster, "orders", replication_factor=3)
    cluster.kafka.kill(2)
    produce(cluster, topic, b"one")
    cluster.kafka.restart(2)
    assert consumed(cluster, topic, 1) == [b"one"]


USER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from scripts.broker.servers import shared
servers = shared(Path(sys.argv[2]), "server")
servers.start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"])
print(servers.process("sleeper"), flush=True)
time.sleep(600)
"""


def exists(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def killed(user):
    user.send_signal(signal.SIGKILL)
    user.communicate()


def test_servers_end_when_the_last_of_their_users_was_killed(tmp_path):
    users = [
        subprocess.Popen([sys.executable, "-c", USER, str(HOUSE), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    first, second = (int(user.stdout.readline()) for user in users)
    assert first == second
    killed(users[0])
    assert exists(first)
    killed(users[1])
    end = time.monotonic() + 20
    while exists(first) and time.monotonic() < end:
        time.sleep(0.05)
    assert not exists(first)


def test_a_test_without_a_way_to_maven_central_is_skipped_and_says_why(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(broker):\n    raise AssertionError\n")
    (tmp_path / "conftest.py").write_text((HOUSE / "tests" / "conftest.py").read_text())
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)],
        env={
            **os.environ,
            "HEADRACE_JARS": str(tmp_path / "jars"),
            "HEADRACE_MAVEN": "http://127.0.0.1:9/",
            "PYTHONPATH": str(HOUSE / "tests"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 skipped" in run.stdout
    assert "no Kafka: Maven Central cannot be reached" in run.stdout


def test_the_java_that_fetches_trusts_whom_the_system_trusts(broker, tmp_path, monkeypatch):
    """A proxy of a company shows certificates of its own: here a server that speaks TLS, though not HTTP."""
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("HEADRACE_MAVEN", f"https://127.0.0.1:{urlsplit(broker.kafka.tls_address).port}/")
    monkeypatch.setenv("SSL_CERT_FILE", str(broker.kafka.folder / "tls.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(Unavailable) as refused:
        fetched("org.example:nothing:1")
    assert "PKIX" not in str(refused.value)
