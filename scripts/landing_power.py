"""Cut the power at every sync of a feed's landing file, and compare the file with what was acknowledged.

    python scripts/landing_power.py [--cuts 2000] [--seed 1]

What a power loss may leave is that of `log_power.py`: of the file any blocks and any length between the synced and the
current one. Before each sync of a run of writes, small and large, such a disk is constructed and the file is opened as
after a restart: the last content is the acknowledged one or the one that was being written, whole. Then the next one is
written, and read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pyarrow as pa

sys.path.append(str(Path(__file__).resolve().parents[1]))

from scripts.log_power import CutLife, cut_often, watched

from headrace.connect.embedded import landing_file

NAME = "jobs"


class Life(CutLife):
    """A landing file that is written, taken over by other processes, and written again."""

    def __init__(self, folder: Path, seed: int, cuts: int) -> None:
        super().__init__(folder, seed, cuts)
        self.acknowledged, self.in_place = -1, 0
        self.path = self.disk.folder / NAME

    def live(self) -> None:
        """Write until there were enough cuts."""
        with watched(self.disk, self.cut):
            while self.cuts_made < self.cuts:
                before = self.path.stat().st_ino if self.path.exists() else None
                self._write(self.path)
                self.acknowledged += 1
                self.in_place += self.path.stat().st_ino == before
                if self.dice.random() < 0.2:
                    landing_file.recovered(self.path)  # another process goes on

    def check(self, left: Path) -> None:
        """Take the file over, write the next content, and take it over again."""
        path = left / NAME
        if self.acknowledged >= 0 or path.exists():
            last = self._expect(path)
            assert last in (self.acknowledged, self.acknowledged + 1), f"{last}, where {self.acknowledged} is durable"
        self._write(path)
        assert self._expect(path) == self.acknowledged + 1, "what was written after the restart is not the last"

    def _expect(self, path: Path) -> int:
        """Return the number of the content that a process takes over, which must be whole."""
        about, parts = landing_file.recovered(path)
        number = int(about[b"number"])
        assert parts["rows"].equals(self._rows(number)), f"content {number} is not whole"
        return number

    def _write(self, path: Path) -> None:
        """Write the next content."""
        number = self.acknowledged + 1
        landing_file.write(path, {b"number": str(number).encode()}, {"rows": self._rows(number)}, sync=True)

    def _rows(self, number: int) -> pa.Table:
        size = Random(f"{self.seed}, {number}").choice((0, 1, 10, 300, 3_000))  # noqa: S311 - replays
        return pa.table({"n": pa.array([number] * size, pa.int64()), "i": pa.array(range(size), pa.int64())})


def main() -> int:
    """Cut the power of landing files."""
    about = "a simulated power loss at every sync of a feed's landing file"
    return cut_often(about, Life, "the last landing was there, whole")


if __name__ == "__main__":
    sys.exit(main())
