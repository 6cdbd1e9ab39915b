"""A disk that is really full: a small tmpfs."""

import subprocess
from contextlib import suppress

import pytest

from headrace.base.errors import AppendFailed, ChangeFailed
from headrace.log import Log

SIZE = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
        done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here")
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def rows(first):
    return [{"n": n, "text": "x" * 500} for n in range(first, first + 20)]


def everything(path):
    with Log(path) as log:
        topic = log.topic("a")
        return topic.read(0, 0, topic.end_offsets()[0] + 1).column("n").to_pylist()


def fill_up(topic):
    """Append until the disk is full; return how many records are there, and the error."""
    n = topic.end_offsets()[0]
    for first in range(n, SIZE, 20):
        try:
            topic.append(rows(first))
        except AppendFailed as error:
            return first, error
    raise AssertionError("the disk is larger than it should be")


@pytest.mark.parametrize("segment_bytes", [1 << 27, 40_000])
def test_a_full_disk_refuses_the_append_and_the_log_goes_on_when_there_is_space(small_disk, segment_bytes):
    """Reading goes on meanwhile, in this process and in fresh ones; nothing of the failed append is there."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(SIZE // 3))
    with Log(small_disk / "log", segment_bytes=segment_bytes) as log:
        topic = log.create_topic("a", "n bigint, text string")
        count, error = fill_up(topic)
        assert count > 200
        assert 'the append to topic "a", partition 0 failed: No space left on device' in error.what
        assert "nothing of the append is in the log" in error.detail
        assert error.hint.startswith("Free disk space")
        assert topic.end_offsets() == {0: count}
        assert everything(log.path) == list(range(count))
        with pytest.raises(AppendFailed):
            topic.append(rows(count))
        ballast.unlink()
        assert topic.append(rows(count)) == {0: range(count, count + 20)}
        assert everything(log.path) == list(range(count + 20))
    with Log(small_disk / "log", segment_bytes=segment_bytes) as log:
        count, _ = fill_up(log.topic("a"))
        assert everything(log.path) == list(range(count))


def test_a_producer_on_a_full_disk_fails_the_futures_and_goes_on_when_there_is_space(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(SIZE // 3))
    with Log(small_disk / "log") as log, log.producer(linger="1 ms") as producer:
        topic = log.create_topic("a", "n bigint, text string")
        sent = [producer.send("a", row) for n in range(0, 4000, 20) for row in rows(n)]
        producer.flush()
        failed = [future for future in sent if future.exception()]
        assert failed
        assert all(isinstance(future.exception(), AppendFailed) for future in failed)
        assert topic.end_offsets()[0] == len(sent) - len(failed) > 200
        ballast.unlink()
        assert producer.send("a", {"n": -1}).result() == len(sent) - len(failed)


def test_what_a_topic_is_cannot_be_changed_on_a_full_disk_and_stays_as_it_was(small_disk):
    with Log(small_disk / "log") as log:
        topic = log.create_topic("a", "n bigint, text string")
        topic.append(rows(0))
        with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))
        for change in (
            lambda: topic.evolve("n bigint, text string, more int"),
            lambda: topic.add_partitions(100),
            lambda: log.create_topic("b", "n bigint"),
        ):
            with pytest.raises(ChangeFailed, match="cannot be created or changed: No space left on device"):
                change()
        assert log.topics() == ["a"]
        (small_disk / "ballast").unlink()
        assert (topic.schema.names, topic.partitions) == (["n", "text"], 1)
        topic.evolve("n bigint, text string, more int")
        topic.add_partitions(100)
        assert topic.append(rows(20), partition=99) == {99: range(20)}
    assert everything(small_disk / "log") == list(range(20))
