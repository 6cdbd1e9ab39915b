"""Power cuts: what was synced is there, whatever happened to its name since."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from headrace.base.disk import make_folder, sync_folder
from headrace.log import Log
from headrace.testing.faults import Crash
from headrace.testing.files import Files
from headrace.testing.power import PowerCuts


def test_a_folder_that_was_renamed_keeps_its_synced_files_under_either_name(tmp_path):
    disk = tmp_path / "disk"
    (disk / "rows").mkdir(parents=True)
    (disk / "rows" / "file").write_bytes(b"synced")
    for seed in range(20):
        files = Files(disk)
        power, left = PowerCuts(files), tmp_path / f"left{seed}"
        with files.watched():
            os.rename(disk / "rows", disk / ".rows")  # noqa: PTH104 -- what the seam sees
            power.cut(0, Random(seed), left)  # noqa: S311 -- replayed
            try:
                (disk / "next").mkdir()
            except Crash:
                files.revive()
            os.rename(disk / ".rows", disk / "rows")  # noqa: PTH104
        for name in os.listdir(left):  # noqa: PTH208
            assert (left / name / "file").read_bytes() == b"synced", f"{name} of seed {seed}"


def after_a_crash_and_a_power_cut(tmp_path, work, call, seed):
    """Crash at a call, work again, cut the power. Return what is left; None where the work has no such call."""
    disk, left = tmp_path / "disk", tmp_path / "left"
    disk.mkdir()
    files = Files(disk)
    power = PowerCuts(files)
    with files.watched():
        files.fail(call, "crash")
        with suppress(Crash):
            work(disk)
            return None
        files.revive()
        work(disk)
        power.cut(0, Random(seed), left)  # noqa: S311 -- replayed
        with pytest.raises(Crash):
            (disk / "next").mkdir()
    return left


def put(disk):
    make_folder(disk / "a" / "b", sync=True)
    with (disk / "a" / "b" / "file").open("wb") as file:
        file.write(b"synced")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(disk / "a" / "b")


@pytest.mark.parametrize("seed", range(5))
def test_a_folder_that_a_dead_process_made_is_synced_by_the_next(tmp_path, seed):
    """The dead one may not have come to it; found by the simulation, seed 23024486."""
    for call in count():
        (tmp_path / str(call)).mkdir()
        left = after_a_crash_and_a_power_cut(tmp_path / str(call), put, call, seed)
        if left is None:
            break
        assert (left / "a" / "b" / "file").read_bytes() == b"synced", f"a crash at call {call}"
    assert call > 5


def append(disk):
    with Log(disk / "deep" / "log") as log:
        if not log.has_topic("t"):
            log.create_topic("t", "n int", partitions=2)
        log.topic("t").append([{"n": 1}], partition=1)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_that_a_dead_process_made_is_synced_before_the_first_append_is_acknowledged(tmp_path, seed):
    for call in count():
        (tmp_path / str(call)).mkdir()
        left = after_a_crash_and_a_power_cut(tmp_path / str(call), append, call, seed)
        if left is None:
            break
        with Log(left / "deep" / "log") as log:
            assert log.topic("t").read(1, 0, 9).column("n").to_pylist()[-1:] == [1], f"a crash at call {call}"
    assert call > 10
