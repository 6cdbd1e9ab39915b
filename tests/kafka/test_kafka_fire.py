"""A fast selection of `scripts/kafka_fire.py`: kills of an app from Kafka to Kafka, and of its broker."""

from __future__ import annotations

from scripts.kafka_fire import Fire, run


def test_an_app_and_its_broker_are_killed_and_no_record_is_lost_or_there_twice(breakable, tmp_path):
    kinds = ("driver", "broker")
    fire = Fire(tmp_path, breakable.kafka, seed=1, local=True, only=kinds, prefix=breakable.prefix)
    run(fire, events=30_000, kills=2)
    assert fire.wrong == []
    assert set(fire.happened) == set(kinds)
    assert fire.sent == 30_000
