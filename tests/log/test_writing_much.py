"""What writes many or large buffers writes all of them, in their order, whatever one system call takes."""

from __future__ import annotations

import io
import os
from random import Random

import pyarrow as pa
import pytest

from headrace.base import disk
from headrace.kernels.files import read_tables, write_tables

MUCH = Random(7).randbytes(3 * disk.MOST_AT_ONCE + 17)  # noqa: S311 -- no secret
BUFFERS = {
    "none": [],
    "an empty one": [b""],
    "one of several calls": [MUCH],
    "more than a call takes": [bytes([i % 256]) * (i % 5) for i in range(1500)],
    "small and large": [b"a", MUCH, b"", b"b", memoryview(MUCH)[5:], pa.py_buffer(MUCH[:9]), b"c"],
    "of other items than bytes": [memoryview(MUCH[:800]).cast("d")],
}


@pytest.mark.parametrize("buffers", BUFFERS.values(), ids=list(BUFFERS))
@pytest.mark.parametrize("most", [None, 1, 70_001])
def test_all_buffers_are_written_at_their_place(tmp_path, monkeypatch, buffers, most):
    if most == 1 and sum(memoryview(each).nbytes for each in buffers) > 10_000:
        most = 50_021
    calls = []

    def some(fd, views, position):
        """Write like a disk that takes less than it is given."""
        calls.append(sum(len(view) for view in views))
        whole = b"".join(views)
        return os.pwrite(fd, whole if most is None else whole[:most], position)

    monkeypatch.setattr(disk, "_pwritev", some)
    expected = b"".join(bytes(memoryview(each).cast("B")) for each in buffers)
    with (tmp_path / "file").open("w+b", buffering=0) as file:
        file.write(b"before")
        disk.write_at(file.fileno(), buffers, 6)
        assert (tmp_path / "file").read_bytes() == b"before" + expected
    assert max(calls, default=0) <= disk.MOST_AT_ONCE


@pytest.mark.parametrize("buffers", BUFFERS.values(), ids=list(BUFFERS))
def test_a_file_of_pythons_gets_all_bytes(buffers):
    file = io.BytesIO()
    for each in buffers:
        disk.write_all(file, each)
    assert file.getvalue() == b"".join(bytes(memoryview(each).cast("B")) for each in buffers)


@pytest.fixture
def begun(monkeypatch):
    """Return what the disk is asked to begin with, and still ask it."""
    asked, real = [], disk._sync_file_range()

    def begin(fd, first, size, flags):
        asked.append((first, first + size))
        assert os.fstat(fd).st_size >= first + size - io.DEFAULT_BUFFER_SIZE
        return 0 if real is None else real(fd, first, size, flags)

    monkeypatch.setattr(disk, "_sync_file_range", lambda: begin)
    return asked


def follow_each_other(parts, first, last):
    assert [begin for begin, _ in parts] == [first, *(end for _, end in parts[:-1])]
    assert last - disk.AHEAD <= parts[-1][1] <= last


@pytest.mark.parametrize("sync", [True, False])
def test_the_disk_begins_with_a_large_file_before_all_of_it_is_written(tmp_path, begun, sync):
    rows = pa.table({name: pa.array(range(at, at + 900_000)) for at, name in enumerate("abc")})
    size = write_tables(tmp_path / "file", {"some": rows, "few": rows.slice(5, 9)}, {}, sync=sync)
    assert read_tables(tmp_path / "file")[0] == {"some": rows, "few": rows.slice(5, 9)}
    if not sync:
        assert not begun
        return
    follow_each_other(begun, 0, size)


def test_the_disk_begins_with_much_that_is_appended(tmp_path, begun):
    buffers = [MUCH] * 5
    for ahead in (False, True):
        with (tmp_path / "file").open("w+b", buffering=0) as file:
            disk.write_at(file.fileno(), buffers, 6, ahead=ahead)
        assert (tmp_path / "file").read_bytes() == bytes(6) + b"".join(buffers)
        assert bool(begun) is ahead
    follow_each_other(begun, 6, 6 + 5 * len(MUCH))


def test_a_system_that_cannot_begin_writes_as_much(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_sync_file_range", lambda: None)
    with (tmp_path / "file").open("w+b", buffering=0) as file:
        disk.write_at(file.fileno(), [MUCH] * 5, 0, ahead=True)
    assert (tmp_path / "file").read_bytes() == MUCH * 5
