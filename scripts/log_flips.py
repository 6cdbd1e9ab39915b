"""Flip single bits of a log's files, and compare what is read with what was written.

    python scripts/log_flips.py [--flips 10000] [--seed 1]

A flip in a segment is an error when that batch is read, a flip in an index or a head is repaired, a flip in a topic's
description is an error at once. A record that was not written is never served. Each flip is tried on the log as it is,
and each third one again after another process has appended to it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.log import Log

APPENDS = (4, 1, 9, 3, 7, 2, 8, 5)
RECORDS = sum(APPENDS)


def build(path: Path) -> dict[int, Any]:
    """Create a log with several segments; return its records by offset."""
    with Log(path, fsync=False, segment_bytes=1_500) as log:
        topic = log.create_topic("a", "id bigint, text string")
        first = 0
        for sequence, count in enumerate(APPENDS):
            rows = [{"id": i, "text": f"text {i} " * (i % 7)} for i in range(first, first + count)]
            topic.append(rows, producer="p", sequence=sequence)
            first += count
        return {row["_offset"]: (row["id"], row["text"]) for row in topic.read(0, 0, RECORDS).to_pylist()}


def flips(folder: Path, seed: int, count: int) -> Counter[str]:
    """Flip this many bits, one at a time; return how many in which kind of file.

    Raises:
        AssertionError: a record was served that was not written, or damage was not noticed.

    """
    dice = Random(seed)  # noqa: S311 - a test that replays
    pristine, path = folder / "pristine", folder / "log"
    truth = build(pristine)
    files = [file.relative_to(pristine) for file in sorted(pristine.rglob("*")) if file.is_file()]
    heavy = [file for file in files if file.suffix in (".segment", ".index")]
    assert {file.suffix for file in heavy} == {".segment", ".index"}
    assert len(heavy) > 5
    flips_by_file: Counter[str] = Counter()
    shutil.copytree(pristine, path)
    for number in range(count):
        name = dice.choice(heavy if dice.random() < 0.8 else files)
        raw = bytearray((pristine / name).read_bytes())
        at = dice.randrange(len(raw))
        raw[at] ^= 1 << dice.randrange(8)
        (path / name).write_bytes(raw)
        try:
            _check(path, name, truth)
            if number % 3 == 0:
                _check_after_an_append(path, truth)
                shutil.rmtree(path)
                shutil.copytree(pristine, path)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, flip {number}, byte {at} of {name}: {error}") from error
        (path / name).write_bytes((pristine / name).read_bytes())
        flips_by_file[name.suffix or name.name] += 1
    return flips_by_file


def _check(path: Path, name: Path, truth: dict[int, Any]) -> None:
    with Log(path, fsync=False) as log:
        found, errors = served(log)
    wrong = {offset: value for offset, value in found.items() if truth.get(offset) != value}
    assert not wrong, f"served, but never written: {wrong}"
    if name.suffix == ".segment":
        assert errors, "the damage was not noticed"
    elif name.name != "topic.json":
        assert not errors, f"{errors} reads failed, though no record is damaged"
        assert len(found) == RECORDS, f"{len(found)} of {RECORDS} records are there"


def _check_after_an_append(path: Path, truth: dict[int, Any]) -> None:
    """An appender checks the files first and may cut the tail; what is served is still what was written."""
    try:
        with Log(path, fsync=False) as log:
            log.topic("a").append([{"id": -1, "text": ""}], partition=0)
    except HeadraceError:
        pass
    with Log(path, fsync=False) as log:
        found, _ = served(log)
    wrong = {at: value for at, value in found.items() if truth.get(at) != value and value != (-1, "")}
    assert not wrong, f"after an append: served, but never written: {wrong}"


def served(log: Log) -> tuple[dict[int, Any], int]:
    """Read each record; return the records, and how many reads failed."""
    found: dict[int, Any] = {}
    try:
        topic = log.topic("a")
    except HeadraceError:
        return found, 1
    errors = 0
    for offset in range(RECORDS):
        try:
            table = topic.read(0, offset, 1)
            assert topic.max_time(0, offset, offset + 1) is not None
        except HeadraceError:
            errors += 1
        else:
            found |= {row["_offset"]: (row["id"], row["text"]) for row in table.to_pylist()}
    return found, errors


def main() -> int:
    """Flip as many bits as the command line says."""
    parser = argparse.ArgumentParser(description="flip bits in the files of a log")
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-flips-") as folder:
        done = flips(Path(folder), options.seed, options.flips)
    print(f"{sum(done.values())} flips from seed {options.seed} ({dict(done)}): none served, none unnoticed; "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
