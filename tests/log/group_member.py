"""A member of the group "a" as a program, to be killed: `group_member.py LOG FOLDER [SESSION]`.

It notes in a file in FOLDER what it has read, then commits it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headrace.base.errors import MemberFenced
from headrace.log import Log


def read(log: Path, folder: Path, session: str) -> None:
    """Read for ever."""
    folder.mkdir(exist_ok=True)
    with Log(log, fsync=False) as opened, opened.consumer("a", "clicks", session=session) as consumer:
        while True:
            found = consumer.poll(100, wait="10 seconds")
            with (folder / f"{os.getpid()}").open("a") as seen:
                for records in found:
                    offsets = records.rows.column("_offset").to_pylist()
                    seen.writelines(f"{records.partition} {offset}\n" for offset in offsets)
            try:
                consumer.commit()
            except MemberFenced:
                continue


if __name__ == "__main__":
    read(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "10 minutes")
