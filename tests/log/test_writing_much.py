"""What writes many or large buffers writes all of them, in their order, whatever one system call takes."""

from __future__ import annotations

import io
import os
from random import Random

import pyarrow as pa
import pytest

from headrace.base import disk

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
