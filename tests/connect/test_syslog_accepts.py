"""A connection that cannot be accepted costs a syslog feed neither its run nor its other connections."""

import os
import resource
import socket
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker_cases import Filled, until
from headrace.connect import syslog


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def no_free_files():
    """Let this process open no file more inside the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1, hard)
    )
    try:
        with suppress(OSError):  # until none is free
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


def connected(port):
    """Return a connection, once somebody listens."""
    found = []

    def tried():
        sender = socket.socket()
        if sender.connect_ex(("127.0.0.1", port)):
            sender.close()
            return False
        found.append(sender)
        return True

    until(tried, "it listens")
    return found[0]


def test_a_process_without_free_files_accepts_later_and_goes_on_reading(tmp_path, port, caplog):
    text = b"<34>1 2003-10-11T22:14:15.003Z m su - ID47 - %d\n"
    with Filled(tmp_path / "log", syslog.LINES, key=()).by(syslog.lines(f"tcp://127.0.0.1:{port}")) as run:
        with connected(port) as first, socket.socket() as second:
            first.sendall(text % 1)
            until(run.rows)
            with no_free_files():
                second.connect(("127.0.0.1", port))
                until(lambda: "Too many open files" in caplog.text or run.status()["error"])
            for sender, number in ((first, 2), (second, 3)):
                sender.sendall(text % number)
            until(lambda: len(run.rows()) == 3, "what both send is landed")
        assert {row["message"] for row in run.rows()} == {"1", "2", "3"}
        assert run.status()["error"] is None
        assert caplog.text.count("Too many open files") <= 2, "it rests, and does not try again and again"
