"""The processes of a session, and the memory that they have, from /proc."""

from __future__ import annotations

from pathlib import Path


def processes_of(leader: int) -> list[int]:
    """Return the processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                session = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
            except (OSError, IndexError):
                continue
            found += [int(entry.name)] if session == leader else []
    return found


def resident(pid: int) -> int:
    """Return the anonymous memory of a process, in bytes."""
    try:
        return int(Path(f"/proc/{pid}/status").read_text().split("RssAnon:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return 0


def is_stopped(pid: int) -> bool:
    """Return whether all threads of a process have stopped, after SIGSTOP; True where there is no /proc to tell."""
    states = [_state(thread) for thread in Path(f"/proc/{pid}/task").glob("*")]
    return all(state in {"T", "t", ""} for state in states)


def _state(thread: Path) -> str:
    """Return the state of a thread, "" of one that has ended."""
    try:
        return (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return ""
