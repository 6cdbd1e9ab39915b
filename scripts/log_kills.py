"""Kill appending processes, again and again, and compare the log with what was acknowledged.

    python scripts/log_kills.py [--kills 1000] [--seed 1]

Each process appends in two ways at once: bulk appends to one topic, and single numbered rows through a producer to
another topic with several partitions. It begins with a retry of what may have been acknowledged. After each kill -9:
no acknowledged record is lost, none is there twice, no append is there in part. Each log lives for some kills, so that
recovery works on the files of earlier recoveries. In every other log the single rows are private, each with its own
subject.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from headrace.log import Log

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headrace.log", "numpy", "pyarrow.compute"])
SEGMENT_BYTES = 60_000  # so that segments roll often
BEHIND = 300  # numbered rows sent again after a restart
KILLS_OF_A_LOG = 20
SCHEMA = "n bigint, i int, text string"


def size_of(n: int) -> int:
    """Return how many rows the n-th append has."""
    return 1 + n * 37 % 60


def appending(path: Path, first: int, first_numbered: int, out: Any) -> None:
    """Append for ever, and send each acknowledgement."""
    with Log(path, segment_bytes=SEGMENT_BYTES) as log:
        threading.Thread(target=_send_numbered, args=(log, first_numbered, out.fileno()), daemon=True).start()
        n, topic = first, log.topic("bulk")
        while True:
            rows = [{"n": n, "i": i, "text": "x" * (97 * i % 300)} for i in range(size_of(n))]
            topic.append(rows, producer="p", sequence=n)
            os.write(out.fileno(), b"w %d\n" % n)
            n += 1


def _send_numbered(log: Log, first: int, out: int) -> None:
    with log.producer(producer="q", linger="1 ms", max_unacknowledged=BEHIND) as producer:
        n = first
        while True:
            sent = producer.send("single", {"n": n, "i": 0, "text": "y" * (n % 50)}, sequence=n)
            sent.add_done_callback(lambda done, n=n: os.write(out, b"s %d\n" % n) if not done.exception() else None)
            n += 1


def storm(path: Path, seed: int, kills: int, *, private: bool = False) -> tuple[int, int]:
    """Kill this many processes of one log; return how many appends and single rows were acknowledged.

    Raises:
        AssertionError: the log differs from what it acknowledged.

    """
    dice = Random(seed)  # noqa: S311 - a test that replays
    with Log(path) as log:
        log.create_topic("bulk", SCHEMA)
        log.create_topic("single", SCHEMA, key="n", partitions=3, private={"text": "n"} if private else None)
    last_append, single = -1, set[int]()
    for kill in range(kills):
        acknowledged = _run_and_kill(path, dice, max(last_append, 0), max(max(single, default=0) - BEHIND, 0))
        for line in acknowledged[: acknowledged.rfind(b"\n") + 1].splitlines():
            kind, number = line.split()
            if kind == b"w":
                last_append = max(last_append, int(number))
            else:
                single.add(int(number))
        try:
            _check_appends(path, last_append)
            _check_single(path, single)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, kill {kill}: {error}") from error
    return last_append + 1, len(single)


def _run_and_kill(path: Path, dice: Random, first: int, first_numbered: int) -> bytes:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=appending, args=(path, first, first_numbered, theirs), daemon=True)
    process.start()
    theirs.close()
    acknowledged, until = b"", None
    while until is None or time.monotonic() < until:
        if select.select([ours], [], [], 0.001)[0]:
            acknowledged += os.read(ours.fileno(), 65_536)
            if until is None:
                until = time.monotonic() + dice.random() ** 2 * 0.15
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    while more := os.read(ours.fileno(), 65_536):
        acknowledged += more
    ours.close()
    return acknowledged


def _check_appends(path: Path, acknowledged: int) -> None:
    with Log(path) as log:
        topic = log.topic("bulk")
        table = topic.read(0, 0, topic.end_offsets()[0])
    n, i = table.column("n").to_numpy(), table.column("i").to_numpy()
    count = int(n[-1]) + 1 if len(n) else 0
    sizes = [size_of(at) for at in range(count)]
    assert count > acknowledged, f"append {acknowledged} was acknowledged, the last one there is {count - 1}"
    assert np.array_equal(n, np.repeat(np.arange(count), sizes)), "appends are missing, doubled, or incomplete"
    assert np.array_equal(i, np.concatenate([np.arange(size) for size in sizes] or [[]])), "rows are in disorder"


def _check_single(path: Path, acknowledged: set[int]) -> None:
    """Nothing is there twice; nothing is missing that was acknowledged, or sent before the last bound."""
    found = []
    with Log(path) as log:
        topic = log.topic("single")
        for partition, end in topic.end_offsets().items():
            table = topic.read(partition, 0, end)
            n = table.column("n").to_numpy()
            assert table.column("text").to_pylist() == ["y" * (at % 50) for at in n], "a text is not what was sent"
            assert (np.diff(n) > 0).all(), f"partition {partition}: a single row is there twice, or out of order"
            found.append(n)
    certain = np.arange(max(max(acknowledged, default=0) - BEHIND, 0))
    missing = np.setdiff1d(np.union1d(certain, list(acknowledged)), np.concatenate(found))
    assert not len(missing), f"single rows were acknowledged and are missing: {missing[:5]}"


def main() -> int:
    """Run as many kills as the command line says."""
    parser = argparse.ArgumentParser(description="kill -9 during appends")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, appends, single = time.monotonic(), 0, 0
    for at in range(-(-options.kills // KILLS_OF_A_LOG)):
        with tempfile.TemporaryDirectory(prefix="headrace-kills-") as folder:
            kills = min(KILLS_OF_A_LOG, options.kills - at * KILLS_OF_A_LOG)
            more = storm(Path(folder), options.seed + at, kills, private=bool(at % 2))
        appends, single = appends + more[0], single + more[1]
        done = at * KILLS_OF_A_LOG + kills
        print(f"seed {options.seed + at}: {done} kills, {appends} appends and {single} single rows "
              f"acknowledged, none lost, none twice; {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
