"""A commit is appended once, whatever crashes in between and whatever is computed the second time."""

import pyarrow as pa
import pytest
from searching import SCHEMA, all_ids, ids, search

from headrace.base.errors import InvalidRows
from headrace.engine.spark.datasource import staging
from headrace.engine.spark.datasource.staging import StagedWrite
from headrace.log.open_topic import OpenTopic
from headrace.log.rows import rows_to_table


@pytest.fixture
def topic(log):
    return log.create_topic("out", SCHEMA, partitions=2, key="id", event_time="at")


@pytest.fixture
def write(log):
    def numbered(commit, name="query"):
        return StagedWrite(log.path / "spark" / name, name, commit, sync=False)

    return numbered


def staged(write, topic, rows, task=0):
    batches = rows_to_table(rows, topic.schema).to_batches(max_chunksize=2)
    return write.stage(iter(batches), topic.schema, task)


class Crash(Exception):
    """The process died here."""


def test_files_are_appended_in_the_order_of_tasks(log, write):
    topic = log.create_topic("one", SCHEMA)
    parts = [staged(write(0), topic, [search(n), search(n + 1)], task=2 - n) for n in (0, 2)]
    write(0).append(topic, parts)
    assert ids(topic) == [[2, 3, 0, 1]]


def test_a_commit_that_is_repeated_appends_nothing(topic, write):
    for rows in ([search(n) for n in range(20)], [search(99)]):
        write(3).append(topic, [staged(write(3), topic, rows)])
    assert all_ids(topic) == list(range(20))
    write(4).append(topic, [staged(write(4), topic, [search(20)])])
    write(3).append(topic, [staged(write(3), topic, [search(98)])])
    assert all_ids(topic) == list(range(21))


def test_a_crash_between_partitions_is_mended_with_the_rows_of_the_first_commit(topic, write, monkeypatch):
    """The second attempt computed other rows: what counts is what was committed."""
    writer, first = OpenTopic.writer, []

    def dies_at_the_second(self, number):
        if first and first[0] != number:
            raise Crash
        first.append(number)
        return writer(self, number)

    rows = [search(n) for n in range(20)]
    staged_file = [staged(write(7), topic, rows)]
    with monkeypatch.context() as patch:
        patch.setattr(OpenTopic, "writer", dies_at_the_second)
        with pytest.raises(Crash):
            write(7).append(topic, staged_file)
    assert [bool(each) for each in ids(topic)].count(True) == 1
    write(7).append(topic, [staged(write(7), topic, [search(n + 100) for n in range(50)])])
    assert all_ids(topic) == list(range(20))
    assert [path.name for path in write(7).folder.iterdir()] == ["commit.json"]


def test_a_crash_before_the_commit_leaves_nothing_to_see(topic, write):
    staged_file = staged(write(0), topic, [search(1)])
    assert ids(topic) == [[], []]
    write(0).abandon([staged_file])
    write(0).append(topic, [staged(write(0), topic, [search(2)])])
    assert all_ids(topic) == [2]


def test_a_large_commit_is_appended_in_parts_that_are_repeated_alike(topic, write, monkeypatch):
    monkeypatch.setattr(staging, "APPEND_BYTES", 100)
    appended = staging._append
    count = 0

    def dies_later(*arguments, **named):
        nonlocal count
        count += 1
        if count == 3:
            raise Crash
        appended(*arguments, **named)

    rows = [search(n) for n in range(30)]
    staged_file = [staged(write(1), topic, rows)]
    with monkeypatch.context() as patch:
        patch.setattr(staging, "_append", dies_later)
        with pytest.raises(Crash):
            write(1).append(topic, staged_file)
    assert 0 < len(all_ids(topic)) < 30
    write(1).append(topic, [])
    assert all_ids(topic) == list(range(30))


def test_rows_without_a_key_go_round_the_partitions(log, write):
    topic = log.create_topic("keyless", SCHEMA, partitions=3)
    for commit in range(3):
        write(commit).append(topic, [staged(write(commit), topic, [search(commit)])])
    assert ids(topic) == [[0], [1], [2]]


def test_a_row_that_does_not_fit_fails_its_task(topic, write):
    bad = pa.record_batch({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(InvalidRows, match='column "id" is null'):
        write(0).stage(iter([bad]), topic.schema, 0)


def test_a_task_without_rows_leaves_no_file(topic, write):
    assert write(0).stage(iter([]), topic.schema, 0) is None
    write(0).append(topic, [])
    assert ids(topic) == [[], []]


def test_staged_rows_hold_no_private_value(log, write):
    topic = log.create_topic("mail", "id bigint, email string", private={"email": "id"})
    rows = rows_to_table([{"id": n, "email": f"{n}@secret.example"} for n in range(3)], topic.schema)
    staged_file = write(0).stage(iter(rows.to_batches()), topic.schema, 0, seal=topic.seal)
    files = [path for path in log.path.rglob("*") if path.is_file()]
    assert any(b"sealed:v1:" in path.read_bytes() for path in files)
    assert not any(b"secret.example" in path.read_bytes() for path in files)
    write(0).append(topic, [staged_file])
    assert topic.read(0, 0, 9)["email"].to_pylist() == [f"{n}@secret.example" for n in range(3)]
    topic.forget(1)
    assert topic.read(0, 0, 9)["email"].to_pylist() == ["0@secret.example", None, "2@secret.example"]
