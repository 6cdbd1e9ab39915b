"""A disk that is really full: a small tmpfs."""

import errno
import io
import os
import subprocess
from contextlib import suppress

import pytest

from headrace.base.errors import AppendFailed, ChangeFailed, HeadraceError, OutsideError
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


CALLS = {
    "append": lambda log: log.topic("a").append(rows(20)),
    "numbered": lambda log: log.topic("a").append(rows(20), producer="p", sequence=1),
    "create": lambda log: log.create_topic("b", "n bigint"),
    "delete": lambda log: log.delete_topic("a"),
    "evolve": lambda log: log.topic("a").evolve("n bigint, text string, more int"),
    "partitions": lambda log: log.topic("a").add_partitions(4),
    "alter": lambda log: log.topic("a").alter(retention="1 day"),
    "seal": lambda log: log.topic("p").append([{"id": 9, "text": "x"}]),
    "forget": lambda log: log.topic("p").forget(1),
    "compact": lambda log: log.topic("c").compact(),
    "clean": lambda log: log.topic("c").clean(),
    "send": lambda log: sent(log),  # noqa: PLW0108 - it is defined below
}
READS = {
    "topics": lambda log: log.topics(),
    "read": lambda log: log.topic("a").read(0, 0, 20),
    "batches": lambda log: list(log.topic("a").batches(0, 0, 20)),
    "ends": lambda log: log.topic("a").end_offsets(),
    "times": lambda log: log.topic("a").max_time(0, 0, 20),
    "sequence": lambda log: log.topic("a").last_sequence("p"),
    "sizes": lambda log: log.topic("a").sizes(),
    "unseal": lambda log: log.topic("p").read(0, 0, 20),
    "verify": lambda log: log.topic("a").verify(),
    "verify all": lambda log: list(log.verify()),
}


def sent(log):
    with log.producer(linger="1 ms") as producer:
        return producer.send("a", {"n": 1}).result()


def three_topics(path):
    with Log(path) as log:
        log.create_topic("a", "n bigint, text string").append(rows(0), producer="p", sequence=0)
        log.create_topic("p", "id bigint, text string", private={"text": "id"}).append([{"id": 1, "text": "secret"}])
        log.create_topic("c", "n bigint, text string", key="n", cleanup="compact").append([*rows(0), *rows(0)])


def remounted(folder, mode):
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


def test_a_read_only_disk_refuses_each_change_and_serves_each_read(small_disk):
    three_topics(small_disk / "log")
    remounted(small_disk, "ro")
    try:
        with Log(small_disk / "log") as log:
            for name, call in CALLS.items():
                with pytest.raises(OutsideError) as error:
                    call(log)
                assert error.value.condition.endswith("_FAILED"), name
                assert "Read-only file system" in error.value.what, name
                assert error.value.hint, name
            for call in READS.values():
                call(log)
            assert list(log.verify()) == []
    finally:
        remounted(small_disk, "rw")
    with Log(small_disk / "log") as log:
        assert everything(log.path) == list(range(20))
        for name, call in CALLS.items():
            if name != "delete":
                call(log)
        assert list(log.verify()) == []


@pytest.mark.parametrize("name", [*CALLS, *READS])
def test_a_disk_that_cannot_be_read_is_an_error_of_ours_in_every_call(tmp_path, monkeypatch, name):
    """Every file below the log fails to open, with EIO; afterwards the log is as it was."""
    three_topics(tmp_path / "log")
    with Log(tmp_path / "log") as log, monkeypatch.context() as patched:
        for topic in log.topics():
            log.topic(topic)

        def failing(real):
            def call(path, *args, **kwargs):
                if isinstance(path, int) or not str(path).startswith(str(tmp_path)):
                    return real(path, *args, **kwargs)
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

            return call

        patched.setattr(os, "open", failing(os.open))
        patched.setattr(os, "listdir", failing(os.listdir))
        patched.setattr(io, "open", failing(io.open))
        try:
            (CALLS | READS)[name](log)
        except HeadraceError as error:
            assert "Input/output error" in str(error), error  # noqa: PT017 - some calls need no file
    with Log(tmp_path / "log") as log:
        assert list(log.verify()) == []
        assert not log.has_topic("a") or everything(log.path) == list(range(20))
