"""Other processes see whole epochs, and a process that dies leaves one."""

import signal
import subprocess
import sys

import pyarrow as pa
import pytest

from headrace.base.schema import parse
from headrace.views.sqlite import SqliteViews

ACCOUNTS = parse("account int, balance bigint")
MANY = 1_000
DYING = """
import os, signal, sys
import pyarrow as pa
from headrace.base.schema import parse
from headrace.views.sqlite import SqliteViews

class Fatal(dict):
    def items(self):
        yield from super().items()
        os.kill(os.getpid(), signal.SIGKILL)

rows = 200_000  # more than SQLite keeps in memory: pages of the epoch are in the file when the process dies
delta = pa.table({"account": list(range(rows)), "balance": [7] * rows, "_weight": [1] * rows})
SqliteViews(sys.argv[1]).apply(1, Fatal(first=delta, last=delta))
"""
WRITING = """
import random, sys
import pyarrow as pa
from headrace.views.sqlite import SqliteViews

random.seed(int(sys.argv[2]))
views = SqliteViews(sys.argv[1], durable=False)
balances = dict(enumerate(views.read("first")["balance"].to_pylist()))
for epoch in range(views.applied() + 1, 100_000):
    changed = {}
    for _ in range(50):  # move money: the total stays
        giver, taker = random.sample(range(len(balances)), 2)
        balances[giver] -= 1
        balances[taker] += 1
        changed |= {giver: balances[giver], taker: balances[taker]}
    delta = pa.table({"account": list(changed), "balance": list(changed.values()), "_weight": [1] * len(changed)})
    views.apply(epoch, {"first": delta, "last": delta})
    print(epoch, flush=True)
"""


@pytest.fixture
def accounts(views):
    start = pa.table({"account": range(MANY), "balance": [100] * MANY, "_weight": [1] * MANY})
    for name in ("first", "last"):
        views.declare(name, ACCOUNTS, ("account",))
    views.apply(0, {"first": start, "last": start})
    return views


def test_a_process_killed_in_the_middle_of_an_epoch_leaves_the_one_before_it_whole(accounts):
    before = accounts.read("first")
    accounts.close()
    ran = subprocess.run([sys.executable, "-c", DYING, accounts.path], check=False)
    assert ran.returncode == -signal.SIGKILL
    with SqliteViews(accounts.path) as views:
        assert views.applied() == 0
        assert views.read("first") == views.read("last") == before
        delta = pa.table({"account": [0], "balance": [7], "_weight": [1]})
        views.apply(1, {"first": delta, "last": delta})
        assert views.read("first")["balance"][0].as_py() == 7


@pytest.mark.parametrize("seed", [1, 2])
def test_a_reader_sees_sums_that_match_while_another_process_writes_and_is_killed(accounts, seed):
    """Whatever the moment: both views are of one epoch, and no money is on its way."""
    accounts.close()
    command = [sys.executable, "-c", WRITING, accounts.path, str(seed)]
    reader, seen = SqliteViews(accounts.path), set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        last_printed = int(writer.stdout.readline())
        while len(seen) < 30:
            with reader.snapshot() as now:
                first, last = now.read("first"), now.read("last")
                assert first == last
                assert sum(first["balance"].to_pylist()) == 100 * MANY
                seen.add(now.applied())
        writer.kill()
        printed = writer.stdout.read().split()
        last_printed = int(printed[-1]) if printed else last_printed
    assert last_printed <= reader.applied() <= last_printed + 1
    assert sum(reader.read("first")["balance"].to_pylist()) == 100 * MANY
