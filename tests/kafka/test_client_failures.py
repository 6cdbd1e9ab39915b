"""What goes wrong with a cluster is said in words of ours, with what to do, and without a secret."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import writing
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec
from kafka import errors as protocol_errors

from headrace.base.broker_errors import BrokerFailed, LoginRefused, RecordTooLarge, TopicMissing, TopicRefused
from headrace.base.errors import InvalidOption
from headrace.base.outside import AccessRefused, Fenced, Unavailable
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client import administration
from headrace.connect.kafka.client.administration import Cluster, KafkaTopic, cluster
from headrace.connect.kafka.client.failures import Heard, failure, of_kafka_python, of_librdkafka

PLACE = KafkaAddress.parse("kafka://localhost:9092?sasl.password=hush&sasl.username=ada")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(administration, "SECONDS", 1.5)


@pytest.mark.usefixtures("impatient")
def test_a_cluster_that_does_not_answer_may_answer_later():
    with pytest.raises(Unavailable) as error:
        Cluster(KafkaAddress.parse("kafka://localhost:1")).names()
    assert "Kafka at localhost:1 did not list its topics" in error.value.what
    assert "Connection refused" in error.value.detail
    assert error.value.may_pass


@pytest.mark.usefixtures("impatient")
def test_a_login_that_is_refused_is_named_as_such_and_its_password_is_not(broker):
    address = KafkaAddress.parse(broker.kafka.sasl_address("ada", "hush-hush"))
    with pytest.raises(LoginRefused) as error:
        Cluster(address).names()
    assert "sasl.password" in error.value.hint
    assert "hush-hush" not in str(error.value)
    assert not error.value.may_pass
    with pytest.raises(LoginRefused) as error:
        writing.opened(writing.sink_at(address))
    assert "hush-hush" not in str(error.value)


@pytest.mark.usefixtures("impatient")
def test_a_login_that_was_refused_once_is_no_reason_for_what_fails_later(breakable, monkeypatch):
    address = KafkaAddress.parse(breakable.kafka.sasl_address("ada", "env:SHOP_PASSWORD"))
    at, right = Cluster(address), breakable.kafka.sasl_address("ada").rpartition("=")[2]
    monkeypatch.setenv("SHOP_PASSWORD", "guessed")
    with pytest.raises(LoginRefused):
        at.names()
    monkeypatch.setenv("SHOP_PASSWORD", right)
    at.names(internal=True)
    breakable.kafka.pause()
    with pytest.raises(Unavailable):
        at.names()


def test_epochs_are_written_over_sasl_and_tls(broker):
    for place in (broker.kafka.sasl_address(), broker.kafka.tls_address):
        writer = writing.opened(writing.sink_at(KafkaAddress.parse(f"{place}&prefix={broker.prefix}")))
        writer.publish(writer.last_epoch() + 1, {"out": writing.rows(writer.last_epoch())})
        writer.close()
    assert writing.ids(broker) == [-1, 0]


def test_an_option_that_librdkafka_does_not_know_is_refused():
    with pytest.raises(InvalidOption, match=r"sasl\.pasword"):
        Cluster(KafkaAddress.parse("kafka://localhost:1?sasl.pasword=hush")).names()


@pytest.mark.parametrize(
    "option", ["security.protocol=SSL&ssl.ca.location=/none.pem", "enable.ssl.certificate.verification=7"]
)
def test_an_option_that_librdkafka_cannot_use_is_refused(option):
    with pytest.raises(InvalidOption, match=r"ssl"):
        Cluster(KafkaAddress.parse(f"kafka://localhost:1?{option}")).names()


def test_what_a_cluster_does_not_create_is_said(broker):
    at = cluster(KafkaAddress.parse(f"{broker.address}&replication=3"))
    with pytest.raises(TopicRefused, match=r"replication") as error:
        at.create(broker.topic("t"))
    assert "Change replication=" in error.value.hint
    at = cluster(KafkaAddress.parse(broker.address))
    with pytest.raises(TopicRefused, match=r"no\.such\.setting") as error:
        at.create(broker.topic("t"), settings={"no.such.setting": "1"})
    assert error.value.hint == "Change the setting."
    at.create(broker.topic("a_b"))
    with pytest.raises(TopicRefused, match=r"collides") as error:
        at.create(broker.topic("a.b"))
    assert "Take another name" in error.value.hint
    with pytest.raises(TopicMissing, match=broker.topic("t")):
        at.topic(broker.topic("t"))


def test_topics_are_created_described_changed_and_deleted(broker):
    at = cluster(KafkaAddress.parse(broker.address))
    name = broker.topic("t")
    assert at.create(name, partitions=2, settings={"cleanup.policy": "compact"})
    assert not at.create(name)
    found = at.topic(name)
    assert (found.partitions, found.replication, at.names()) == (2, 1, [name])
    assert at.settings(name)["cleanup.policy"] == "compact"
    at.add_partitions(name, 3)
    assert at.topic(name).partitions == 3
    assert at.ends(name, 3) == {0: 0, 1: 0, 2: 0}
    assert at.offsets([(name, 0)], at=OffsetSpec.earliest()) == {(name, 0): 0}
    at.delete(name)
    at.delete(name)
    at.create(name, partitions=1)
    assert at.topic(name).id != found.id


def test_partitions_are_added_when_the_cluster_shows_them(monkeypatch):
    """Brokers hear of them one after another, and another one may be asked next."""
    shown = [KafkaTopic("t", "id", partitions, 1) for partitions in (2, 2, 3)]
    monkeypatch.setattr(Cluster, "_ask", lambda *_: None)
    monkeypatch.setattr(Cluster, "describe", lambda *_: {"t": shown.pop(0)})
    Cluster(KafkaAddress.parse("kafka://nowhere:9092")).add_partitions("t", 3)
    assert not shown


def test_offsets_of_a_group_are_stored_and_shown(broker):
    at = cluster(KafkaAddress.parse(broker.address))
    name, group = broker.topic("t"), broker.topic("g")
    at.create(name, partitions=2)
    assert at.group_offsets(group) == {}
    at.set_group_offsets(group, {(name, 0): 5})
    assert at.group_offsets(group) == {(name, 0): 5}
    assert group in at.groups()
    with pytest.raises(TopicMissing):
        at.set_group_offsets(group, {(broker.topic("other"), 0): 5})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.SASL_AUTHENTICATION_FAILED, LoginRefused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessRefused),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AccessRefused),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
        (KafkaError.INVALID_REPLICATION_FACTOR, TopicRefused),
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Unavailable),
        (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Unavailable),
        (KafkaError.INVALID_TIMESTAMP, BrokerFailed),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLarge),
        (KafkaError.UNSUPPORTED_VERSION, BrokerFailed),
    ],
)
def test_each_number_of_an_error_has_a_meaning(code, kind):
    found = failure(code, "why", PLACE, doing='write to the topic "t"')
    assert type(found) is kind
    assert "hush" not in str(found)
    of_client = of_librdkafka(KafkaException(KafkaError(code)), PLACE, doing="write")
    assert type(of_client) is kind


def test_errors_of_the_protocol_layer_have_the_same_meanings():
    assert type(of_kafka_python(protocol_errors.NotLeaderForPartitionError(), PLACE, doing="read")) is Unavailable
    assert type(of_kafka_python(protocol_errors.KafkaConnectionError("x"), PLACE, doing="read")) is Unavailable
    refused = protocol_errors.SaslAuthenticationFailedError("no")
    assert type(of_kafka_python(refused, PLACE, doing="read")) is LoginRefused


def test_a_login_that_was_refused_on_the_side_explains_a_time_out():
    heard = Heard()
    heard.options()["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "sasl: no"))
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert type(of_librdkafka(late, PLACE, doing="list its topics", heard=heard)) is LoginRefused
    assert type(of_librdkafka(late, PLACE, doing="list its topics")) is Unavailable


def test_a_client_that_nobody_has_any_more_ends_at_once():
    """It has threads and files; the collector may not come for a long time."""
    made = Cluster(KafkaAddress.parse("kafka://127.0.0.1:1"))
    made._admin()
    reports, heard = weakref.ref(made._heard.options()["error_cb"]), weakref.ref(made._heard)
    gc.disable()
    try:
        del made
        assert reports() is heard() is None
    finally:
        gc.enable()


def test_threads_that_open_clusters_at_once_share_them():
    addresses = [KafkaAddress.parse(f"kafka://localhost:{port}") for port in range(9100, 9150)]
    begin, interval = threading.Barrier(4), sys.getswitchinterval()

    def open_all(_):
        begin.wait()
        return [cluster(address) for address in addresses]

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(10):
                administration._cluster.cache_clear()
                assert all(len({*map(id, same)}) == 1 for same in zip(*threads.map(open_all, range(4)), strict=True))
    finally:
        sys.setswitchinterval(interval)
