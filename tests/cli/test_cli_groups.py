"""`headrace groups`: who reads a log, and how far."""

import json

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import root
from headrace.log import Log


def said(*arguments):
    result = CliRunner().invoke(root, ["groups", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def log(tmp_path):
    app = hr.App("shop", storage=tmp_path / "storage", shards=1)
    app.stream("clicks", "id bigint").to_view("v")
    with app.start(carrier="in-process") as running:
        with Log(tmp_path / "storage" / "log") as opened:
            opened.topic("clicks").append([{"id": number} for number in range(10)])
        running.await_caught_up(timeout=300)
    with Log(tmp_path / "storage" / "log") as opened:
        opened.topic("clicks").append([{"id": number} for number in range(5)])
        yield opened


def test_groups_queues_and_apps_are_listed_and_described(log):
    with log.consumer("billing", "clicks") as consumer, log.queue("mail", "clicks") as queue:
        consumer.poll(12)
        consumer.commit()
        queue.ack(queue.take(2)[:1])
        code, printed = said("list", "--json", "--log", log.path)
        assert code == 0
        listed = {each["group"]: each for each in json.loads(printed)}
        assert {name: (each["kind"], each["lag"]) for name, each in listed.items()} == {
            "billing": ("consumers", 3),
            "mail": ("queue", 14),
            "shop": ("app", 5),
        }
        assert "billing  consumers" in said("list", "--log", log.path)[1]
        code, printed = said("describe", "billing", "--json", "--log", log.path)
        (described,) = json.loads(printed)
        assert (described["members"], sum(each["lag"] for each in described["partitions"])) == (1, 3)
        assert "1 leased" in said("describe", "mail", "--log", log.path)[1]
        assert "clicks" in said("describe", "shop", "--log", log.path)[1]
        code, printed = said("reset", "billing", "--to", "earliest", "--log", log.path)
        assert code == 1
        assert "GROUP_IN_USE" in printed


def test_a_group_begins_elsewhere(log):
    with log.consumer("billing", "clicks") as consumer:
        consumer.poll()
        consumer.commit()
    for where, lag in (("earliest", 15), ("latest", 0), ("2000-01-01", 15), ("2100-01-01", 0)):
        code, printed = said("reset", "billing", "--to", where, "--json", "--log", log.path)
        assert code == 0, printed
        (listed,) = [
            each for each in json.loads(said("list", "--json", "--log", log.path)[1]) if each["group"] == "billing"
        ]
        assert listed["lag"] == lag
    assert said("reset", "billing", "--to", "99", "--log", log.path)[0] == 1
    assert said("reset", "billing", "--to", "soon", "--log", log.path)[0] == 1
    assert said("reset", "billing", "--to", "latest", "--topic", "views", "--log", log.path)[0] == 1


def test_a_reset_names_every_partition_and_knows_a_topic_that_was_made_again(log):
    topic = log.create_topic("views", "id bigint")
    topic.append([{"id": 1}, {"id": 2}])
    with log.consumer("billing", "views") as consumer:
        consumer.poll()
        consumer.commit()
    topic.add_partitions(2)
    topic.append([{"id": 5}], partition=1)
    reset = ("reset", "billing", "--to", "latest", "--json", "--log", log.path)
    code, printed = said(*reset)
    assert code == 0, printed
    assert [(each["partition"], each["was"], each["is"]) for each in json.loads(printed)] == [(0, 2, 2), (1, None, 1)]
    with log.consumer("billing", "views") as consumer:
        assert consumer.poll() == []
    log.delete_topic("views")
    topic = log.create_topic("views", "id bigint")
    topic.append([{"id": 3}, {"id": 4}])
    (described,) = json.loads(said("describe", "billing", "--json", "--log", log.path)[1])
    assert [(each["next"], each["lag"]) for each in described["partitions"]] == [(None, 2)]
    assert [(each["was"], each["is"]) for each in json.loads(said(*reset)[1])] == [(None, 2)]
    with log.consumer("billing", "views") as consumer:
        assert consumer.poll() == []


def test_what_is_not_there_is_named(log):
    code, printed = said("describe", "bill", "--log", log.path)
    assert code == 1
    assert "UNKNOWN_GROUP" in printed
    with log.queue("mail", "clicks"):
        pass
    code, printed = said("reset", "mail", "--to", "latest", "--log", log.path)
    assert code == 1
    assert "is a queue" in printed
    code, printed = said("reset", "shop", "--to", "latest", "--log", log.path)
    assert code == 1
    assert "is an app" in printed
    assert "headrace reset FILE" in printed
