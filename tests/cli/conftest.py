"""The command line, called in this process, in a folder of its own."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import root
from headrace.cli.programs import load_app
from headrace.demo.carriers import InThisProcess
from headrace.log import Log

COUNTS = """
import headrace as hr

app = hr.App("shop", storage="shop")
orders = app.stream("orders", "user string, price bigint, at timestamp", key="user", event_time="at")
spent = orders.group_by("user").window(hr.tumbling("1 hour", grace="0 seconds")).agg(spent="sum(price)").named("spent")
spent.to_view("spent")
spent.changes().to_topic("spent_changes")
orders.group_by("user").agg(n="count(*)").named("orders_of").to_view("orders_of")

if __name__ == "__main__":
    raise SystemExit("it must not run")
"""
ORDERS = [
    {"user": "ann", "price": 3, "at": "2026-01-31 10:00"},
    {"user": "bob", "price": 4, "at": "2026-01-31 10:10"},
    {"user": "ann", "price": 5, "at": "2026-01-31 10:20"},
]


@dataclass
class CommandResult:
    """What a command gave back."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Let each test stand in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_TRACE", raising=False)
    return tmp_path


@pytest.fixture
def headrace():
    def call(*arguments, stdin=None):
        result = CliRunner().invoke(root, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def program(folder):
    """Write a program; by default that of a small shop."""

    def write(text=COUNTS, name="shop.py"):
        (folder / name).write_text(text)
        return name

    return write


@pytest.fixture
def ran(program):
    """Run the shop without Spark over rows, in one epoch after the other; return its program."""

    def run(rows=ORDERS, file=None):
        file = file or program()
        app = load_app(file)
        running = InThisProcess(app)
        try:
            with Log(Path(app.storage) / "log") as log:
                log.topic("orders").append(rows)
            running.await_caught_up()
        finally:
            running.stop()
        return file

    return run


@pytest.fixture
def git(tmp_path_factory):
    """Make a repository; returns it and a function that commits files at a time."""
    repo = tmp_path_factory.mktemp("repo")

    def run(*arguments, **env):
        plain = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(repo), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = {"GIT_AUTHOR_NAME": "Zoë", "GIT_AUTHOR_EMAIL": "zoë@example.org"}
        identity |= {"GIT_COMMITTER_NAME": "Zoë", "GIT_COMMITTER_EMAIL": "zoë@example.org"}
        subprocess.run(["git", "-C", repo, *arguments], env=plain | identity | env, check=True, capture_output=True)

    def commit(*paths, written, committed=None):
        for path in paths:
            file = repo / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{written} {file.read_text() if file.exists() else ''}")
        run("add", "-A")
        times = {"GIT_AUTHOR_DATE": f"{written}Z", "GIT_COMMITTER_DATE": f"{committed or written}Z"}
        run("commit", "--allow-empty", "-q", "-m", "a commit", **times)

    run("init", "-q", "-b", "main")
    commit.run = run
    commit.repo = repo
    return commit
