"""What an epoch produces may be more than the memory: pairs of a join go through a mapped file."""

import subprocess
import sys

import pyarrow as pa
import pytest

from headrace.base.memory import memory_limit, task_memory
from headrace.kernels.spool import Spool

PROGRAM = """
import sys, threading, time
import headrace as hr
from headrace.testing import Driver

rows, folder = int(sys.argv[1]), sys.argv[2]
most = [0]

def watch():
    while True:
        with open("/proc/self/status") as status:
            most[0] = max(most[0], int(status.read().split("RssAnon:")[1].split()[0]) >> 10)
        time.sleep(0.01)

app = hr.App("pairs", storage=folder, shards=4)
left = app.table("left", "id int, k int, a string", key="id")
right = app.table("right", "rid int, k int, b string", key="rid")
left.join(right, on="k", how="inner").group_by("a").agg(n="count(*)", s="sum(rid)", b="max(b)").to_view("sums")
with Driver(app) as driver:
    driver.send("left", *({"id": i, "k": 1, "a": f"left {i % 3}"} for i in range(rows)))
    driver.send("right", *({"rid": i, "k": 1, "b": f"a text of the right side {i:09d}"} for i in range(rows)))
    with open("/proc/self/status") as status:
        before = int(status.read().split("RssAnon:")[1].split()[0]) >> 10
    threading.Thread(target=watch, daemon=True).start()
    driver.run()
    print(most[0] - before, sum(row["n"] for row in driver.view("sums")), sum(row["s"] for row in driver.view("sums")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("rows", [2_000, pytest.param(10_000, marks=pytest.mark.prove)])
def test_all_pairs_of_two_tables_with_equal_keys_leave_in_little_memory(tmp_path, rows):
    """4 million pairs of 60 bytes are 240 MB, 100 million are 6 GB."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(rows), str(tmp_path / "app")],
        capture_output=True, text=True, check=True, env={"HEADRACE_MEMORY": "600", "HOME": str(tmp_path)},
    )  # fmt: skip
    megabytes, pairs, total = (int(word) for word in answer.stdout.split())
    assert pairs == rows * rows
    assert total == rows * sum(range(rows))
    assert megabytes < 200


@pytest.mark.parametrize("in_memory", [0, 100, 1 << 30])
def test_a_spool_returns_what_it_took_in_order(tmp_path, monkeypatch, in_memory):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    spool = Spool(pa.schema([("n", pa.int64()), ("text", pa.string())]), in_memory=in_memory)
    for start in range(0, 100, 10):
        numbers = list(range(start, start + 10))
        spool.add(pa.record_batch({"n": numbers, "text": [f"é{n}" for n in numbers]}))
    table = spool.table()
    assert table.column("n").to_pylist() == list(range(100))
    assert table.column("text")[-1].as_py() == "é99"
    assert not list((tmp_path / "spill").glob("*")), "the file has lost its name"


def test_a_spool_that_is_given_up_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    spool = Spool(pa.schema([("n", pa.int64())]), in_memory=0)
    spool.add(pa.record_batch({"n": [1]}))
    assert len(list((tmp_path / "spill").iterdir())) == 1
    del spool
    assert not list((tmp_path / "spill").iterdir())


def test_an_empty_spool_has_its_schema():
    schema = pa.schema([("n", pa.int64())])
    assert Spool(schema).table().schema == schema


def test_the_memory_may_be_said(monkeypatch):
    machine = memory_limit()
    monkeypatch.setenv("HEADRACE_MEMORY", "3000")
    assert memory_limit() == 3000 << 20
    assert task_memory() <= int(0.6 * (3000 << 20))
    monkeypatch.setenv("HEADRACE_MEMORY", "much")
    assert memory_limit() == machine
