"""A worker of a queue as a program, to be killed: `queue_worker.py LOG FOLDER`.

It notes in FOLDER what it has acknowledged, and beside FOLDER what it is about to; every 500th record is poison.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headrace.log import Log


def work(log: Path, folder: Path) -> None:
    """Work for ever."""
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    with (
        Log(log, fsync=False) as opened,
        opened.queue("g", "jobs", max_deliveries=50) as queue,
        (folder / name).open("w") as done,
        (folder.parent / f"begun-{name}").open("w") as begun,
    ):
        while True:
            tasks = queue.take(20, wait="1 minute")
            good = [task for task in tasks if task.value["id"] % 500]
            begun.writelines(f"{task.value['id']}\n" for task in good)
            begun.flush()
            queue.ack(good)
            done.writelines(f"{task.value['id']}\n" for task in good)
            done.flush()
            queue.release([task for task in tasks if task.value["id"] % 500 == 0])


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
