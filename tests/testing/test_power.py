"""Power cuts: what was synced is there, whatever happened to its name since."""

from __future__ import annotations

import os
from random import Random

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
