"""Runs one server process, and ends it when nobody uses it any more: python keeper.py FOLDER NAME COMMAND...

The process's words are in FOLDER/NAME.log and its id is in FOLDER/NAME.pid, a file that stays locked exactly as long
as the process runs. Its users hold a shared lock of FOLDER/users; the system frees it when they end, however they end.
When the last is gone the process is killed, FOLDER/ended is made, and FOLDER/NAME (its data) is removed. Where there
is no FOLDER/users, the process runs until somebody ends it. The command returns when the process was started: 0, or 1
if it could not be.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path


def keep(folder: Path, name: str, command: list[str], started: int) -> None:
    """Run the command, and return when it has ended; a byte in the pipe `started` says that it was started."""
    with (folder / f"{name}.pid").open("a+") as mine, (folder / f"{name}.log").open("ab") as log:
        fcntl.flock(mine, fcntl.LOCK_EX)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
        mine.truncate(0)
        mine.write(str(process.pid))
        mine.flush()
        os.write(started, b"1")
        if (folder / "users").exists():
            threading.Thread(target=_end_when_unused, args=(folder, process), daemon=True).start()
        process.wait()
        if (folder / "ended").exists():
            shutil.rmtree(folder / name, ignore_errors=True)


def _end_when_unused(folder: Path, process: subprocess.Popen[bytes]) -> None:
    with (folder / "users").open() as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        (folder / "ended").touch()
        process.kill()
        process.wait()


def main() -> None:
    """Run the command in the background."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        sys.exit(0 if os.read(reading, 1) else 1)
    keep(Path(sys.argv[1]), sys.argv[2], sys.argv[3:], writing)


if __name__ == "__main__":
    main()
