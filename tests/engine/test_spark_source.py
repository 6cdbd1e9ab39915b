"""How an epoch's records are dealt out to the tasks that read them."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.time import SystemClock
from headrace.connect.source import OffsetRange
from headrace.engine.dealing import packed
from headrace.engine.outside import Outside
from headrace.engine.spark.planning import Planning

pytest.importorskip("headrace.engine.spark.source")


@given(rows=st.lists(st.integers(1, 50), min_size=1, max_size=9), tasks=st.integers(1, 6))
def test_tasks_get_all_records_in_order_and_like_numbers_of_them(rows, tasks):
    slices = [OffsetRange(source="s", partition=str(p), start=100 * p, end=100 * p + n) for p, n in enumerate(rows)]
    made = packed(slices, tasks)
    dealt = [(piece.partition, offset) for task in made for piece in task for offset in range(piece.start, piece.end)]
    assert dealt == [(piece.partition, offset) for piece in slices for offset in range(piece.start, piece.end)]
    assert len(made) <= tasks
    assert all(sum(piece.rows for piece in task) <= -(-sum(rows) // tasks) for task in made)


def planned(storage, inputs):
    return Planning(
        app_id="x",
        app="small",
        storage=storage,
        shards=2,
        inputs=inputs,
        first=9,
        small=1,
        scanned=frozenset(),
        fault=len,
    )


PLANNER = """
import sys, pickle
import headrace.engine.spark.source
pickle.loads(bytes.fromhex(sys.argv[1]))
heavy = {"duckdb", "sqlglot", "pandas", "headrace.plan", "headrace.expressions", "headrace.kernels.duck"}
print(sorted(heavy & set(sys.modules)))
"""


def test_the_planner_of_epochs_imports_little(tmp_path):
    """Each start waits for it."""
    app = hr.App("small", storage=tmp_path)
    app.stream("a", "id int, at timestamp", key="id", event_time="at", format="json").to_topic("b")
    inputs = Outside(app.plan(), tmp_path, None, clock=SystemClock()).inputs
    given = pickle.dumps(planned(tmp_path, inputs)).hex()
    ended = subprocess.run([sys.executable, "-c", PLANNER, given], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


PLANS = """
import sys
from headrace.engine.spark import workers
from headrace.engine.spark.source import EpochReader
import pickle
workers.hide_pandas()
reader = EpochReader(pickle.loads(bytes.fromhex(sys.argv[1])), b"")
assert reader.latestOffset(reader.initialOffset(), None)["ranges"]
assert "pandas" not in sys.modules
import pyarrow as pa
print(pa.table({"a": [1]}).to_pandas().shape)
"""


def test_the_first_epoch_of_a_start_is_planned_without_pandas(tmp_path):
    """Arrow imports it with the first array, where it is installed: a quarter of a second of that epoch."""
    app = hr.App("small", storage=tmp_path)
    app.stream("a", "id int, at timestamp", event_time="at").to_topic("b")
    outside = Outside(app.plan(), tmp_path, None, clock=SystemClock())
    with hr.Log(tmp_path / "log") as log:
        log.create_topic("a", "id int, at timestamp", event_time="at").append([{"id": 1, "at": "2026-01-31 10:00:00"}])
    given = pickle.dumps(planned(tmp_path, outside.inputs)).hex()
    ended = subprocess.run([sys.executable, "-c", PLANS, given], capture_output=True, text=True, check=True)
    assert ended.stdout == "(1, 1)\n"
