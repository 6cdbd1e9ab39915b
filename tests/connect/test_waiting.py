"""A process with many files open waits for its connections as any other does."""

import resource
import socket
from fcntl import F_DUPFD, fcntl
from pathlib import Path

import pytest

import headrace
from headrace.base.waiting import readable, writable

FIRST = 1_024  # the number from which `select.select` takes none


@pytest.fixture
def many():
    """Let a process have more files open than `select.select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft if soft == resource.RLIM_INFINITY or soft > FIRST + 100 else FIRST + 100
    if hard not in (resource.RLIM_INFINITY, soft) and hard < wanted:
        pytest.skip(f"a process may have {hard} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many")
def test_a_connection_with_a_great_number_is_waited_for():
    here, there = socket.socketpair()
    with here, there, socket.socket(fileno=fcntl(here.fileno(), F_DUPFD, FIRST)) as high:
        assert high.fileno() >= FIRST
        assert writable(high, 0)
        assert not readable(high, 0)
        assert not readable(high.fileno(), 0.01)
        there.sendall(b"x")
        assert readable(high)
        assert high.recv(1) == b"x"
        there.close()
        assert readable(high, -1), "it has ended"


def test_nothing_else_uses_select():
    source = Path(headrace.__file__).parent
    users = [each.name for each in source.rglob("*.py") if "select.select(" in each.read_text()]
    assert users == ["waiting.py"]
