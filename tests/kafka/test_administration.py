"""What a cluster says of itself: brokers hear of changes one after another."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka.admin import OffsetSpec

from headrace.base.broker_errors import TopicMissing
from headrace.connect.kafka import KafkaAddress
from headrace.connect.kafka.client import administration
from headrace.connect.kafka.client.administration import Cluster, cluster

ASKED = {
    "its description": lambda at, name: at.topic(name).name,
    "its settings": lambda at, name: at.settings(name)["cleanup.policy"],
    "its offsets": lambda at, name: at.offsets([(name, 0)], at=OffsetSpec.latest()),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_topic_that_a_broker_hears_of_late_is_not_missing(broker, what):
    address = KafkaAddress.parse(broker.address)
    name = address.cluster_name("late")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ASKED[what](Cluster(address), name)))
    asking.start()
    time.sleep(0.3)
    cluster(address).create(name, partitions=1)
    asking.join()
    expected = {"its description": name, "its settings": "delete", "its offsets": {(name, 0): 0}}
    assert answers == [expected[what]]


def test_a_client_that_nobody_uses_is_closed_when_another_one_is_opened(broker, monkeypatch):
    first = cluster(KafkaAddress.parse(broker.address))
    first.names()
    monkeypatch.setattr(administration, "IDLE_SECONDS", 0.0)
    cluster(KafkaAddress.parse(f"{broker.address}&client.id=other"))
    assert first._client is None
    assert first.names() == []


@pytest.mark.parametrize("what", ASKED)
def test_a_topic_that_does_not_exist_is_missing(broker, what):
    with pytest.raises(TopicMissing):
        ASKED[what](Cluster(KafkaAddress.parse(broker.address)), f"{broker.prefix}none")
