"""A copy of a log that is changed and appended to meanwhile can be read, whatever came while it was made."""

import pytest

from headrace.base.errors import TopicDeleted
from headrace.log import Log, copying

SCHEMA = "id bigint, user bigint, mail string"


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        topic = opened.create_topic("orders", SCHEMA, private={"mail": "user"})
        topic.append([{"id": 1, "user": 1, "mail": "a@b"}])
        yield opened


def restored(copy, folder):
    for name, content in copy.contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, (path, size) in copy.prefixes.items():
        (folder / name).write_bytes(path.read_bytes()[:size])
    return folder


def before_the_heads(monkeypatch, happens):
    """Let something happen once, when the copying begins to read a topic's heads."""
    add, left = copying._add, [happens]

    def added(*arguments):
        if left:
            left.pop()()
        add(*arguments)

    monkeypatch.setattr(copying, "_add", added)


def new_subject(topic):
    topic.append([{"id": 2, "user": 2, "mail": "c@d"}], partition=0)


def new_column(topic):
    topic.evolve(f"{SCHEMA}, total int")
    topic.append([{"id": 2, "user": 1, "mail": "c@d", "total": 3}], partition=0)


def new_partitions(topic):
    topic.add_partitions(3)
    topic.append([{"id": 2, "user": 2, "mail": "c@d"}], partition=2)


@pytest.mark.parametrize("happens", [new_subject, new_column, new_partitions])
def test_a_copy_has_the_keys_the_schemas_and_the_partitions_of_its_records(log, tmp_path, monkeypatch, happens):
    """They were read before the heads, so a backup could have a record of a subject whose key it did not have."""
    before_the_heads(monkeypatch, lambda: happens(log.topic("orders")))
    with copying.copied(log, ["orders"]) as copy, Log(restored(copy, tmp_path / "copy")) as other:
        topic = other.topic("orders")
        rows = [row for number in range(topic.partitions) for row in topic.read(number, 0, 10).to_pylist()]
        assert [(row["id"], row["mail"]) for row in rows] == [(1, "a@b"), (2, "c@d")]


def test_what_an_appender_replaces_while_a_log_is_copied_is_left_out(log, tmp_path):
    """A list of producers that is there and cannot be opened any more, as a link to nothing is."""
    (log.path / "topics" / "orders" / "0" / f"{1:020d}.producers").symlink_to(tmp_path / "gone")
    with copying.copied(log, ["orders"]) as copy, Log(restored(copy, tmp_path / "copy")) as other:
        assert other.topic("orders").end_offsets() == {0: 1}


def test_a_copy_of_a_topic_that_has_lost_its_description_has_one(log, tmp_path):
    (log.path / "topics" / "orders" / "topic.json").unlink()
    with copying.copied(log, ["orders"]) as copy, Log(restored(copy, tmp_path / "copy")) as other:
        assert other.topic("orders").end_offsets() == {0: 1}


def test_a_topic_that_is_deleted_while_it_is_copied_is_named(log, monkeypatch):
    before_the_heads(monkeypatch, lambda: log.delete_topic("orders"))
    with pytest.raises(TopicDeleted), copying.copied(log, ["orders"]):
        pass
