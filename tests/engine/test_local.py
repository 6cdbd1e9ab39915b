"""An app runs for real without Spark, as a program, and moves between the carriers without a reset."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
import supervising

import headrace as hr
from headrace.base.errors import HeadraceError, InvalidPlan, NotRunning, StepFailed, StorageBusy
from headrace.base.time import SystemClock
from headrace.connect import parquet
from headrace.engine.engine import Engine

PROGRAM = Path(supervising.__file__)
CLOCK = SystemClock()
PATIENCE = 600


@contextmanager
def program(storage, carrier="in-process", restart="never"):
    """Run the app in a process of its own."""
    command = [sys.executable, "-X", "faulthandler", PROGRAM, storage, carrier, restart]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition, process):
    """Wait until a condition holds while a process lives."""
    began = CLOCK.monotonic()
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert CLOCK.monotonic() - began < PATIENCE, stacks(process)
        CLOCK.sleep(0.02)


def stacks(process):
    """End a process that hangs; return what its threads did."""
    process.send_signal(signal.SIGABRT)
    return process.communicate(timeout=300)[1]


def runs(storage):
    """Whether an app runs that has said so."""
    seen = supervising.make(storage).status()
    return seen["state"] == "running" and seen["carrier"] is not None


def expected(tmp_path, count):
    """What a run that nothing disturbs gives."""
    storage = tmp_path / "expected"
    with supervising.make(storage).start(carrier="in-process") as running:
        supervising.append(storage, supervising.rows_of(0, count))
        running.await_caught_up(timeout=300)
    return supervising.outputs(storage)


def test_an_app_runs_in_this_process_and_goes_on_from_where_it_stopped(tmp_path):
    """In parts: what two runs do is what one does."""
    storage = tmp_path / "storage"
    app = supervising.make(storage)
    for part in range(2):
        with app.start(carrier="in-process") as running:
            with pytest.raises(StorageBusy):
                supervising.make(storage).start(carrier="in-process")
            supervising.append(storage, supervising.rows_of(part * 300, part * 300 + 300))
            running.await_caught_up(timeout=300)
            status = running.status()
            assert (status["state"], status["carrier"], status["running"]) == ("running", "in-process", True)
            assert app.status()["state"] == "running"
        assert app.status()["state"] == "stopped"
    assert running.status()["running"] is False
    with pytest.raises(NotRunning):
        running.await_caught_up()
    assert supervising.outputs(storage) == expected(tmp_path, 600)


def test_a_program_may_change_its_folder_while_an_app_with_a_relative_storage_runs(tmp_path, monkeypatch):
    """State, views, files of sinks and the log stay where the app was started."""
    (tmp_path / "started").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "started")
    app = hr.App("relative", storage="here", topics="log:there", shards=2)
    counts = app.stream("t", "k string").group_by("k").agg(n="count(*)")
    counts.to_view("counts")
    counts.to(parquet.folder("files"))
    with app.start(carrier="in-process") as running:
        monkeypatch.chdir(tmp_path / "elsewhere")
        hr.Log(tmp_path / "started" / "there").topic("t").append([{"k": "a"}])
        running.await_caught_up(timeout=300)
    assert [*Path().iterdir()] == []
    monkeypatch.chdir(tmp_path / "started")
    assert app.view("counts").to_pylist() == [{"k": "a", "n": 1}]
    assert duckdb.sql(parquet.sql("files")).fetchall() == [("a", 1)]
    with app.start(carrier="in-process") as running:
        running.await_caught_up(timeout=300)
        assert running.epoch >= 0


def test_a_program_without_spark_imports_no_pyspark(tmp_path):
    code = (
        "import sys, supervising\n"
        "with supervising.make(sys.argv[1]).start(carrier='in-process') as running:\n"
        "    running.await_caught_up(timeout=300)\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j')]\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "storage"], cwd=PROGRAM.parent, check=True, timeout=PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_program_at_the_end_of_an_epoch(tmp_path, number):
    storage = tmp_path / "storage"
    with program(storage) as running:
        wait_for(lambda: runs(storage), running)
        supervising.append(storage, supervising.rows_of(0, 300))
        wait_for(lambda: supervising.total(storage) == 300, running)
        running.send_signal(number)
        _, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, err
    assert supervising.make(storage).status()["state"] == "stopped"


def test_a_failure_ends_the_app_with_its_error_and_status_says_so(tmp_path):
    app = hr.App("failing", storage=tmp_path / "storage", shards=1)
    app.stream("t", "v int").select(w="1 / v").to_topic("out")
    running = app.start(carrier="in-process")
    with hr.Log(tmp_path / "storage" / "log") as log:
        log.topic("t").append([{"v": 0}])
    with pytest.raises(StepFailed):
        running.await_caught_up(timeout=300)
    running.stop()
    seen = app.status()
    assert seen["state"] == "failed"
    assert seen["last_error"].startswith("[STEP_FAILED]")


def test_nobody_is_asked_for_more_records_while_an_epoch_runs(tmp_path, monkeypatch):
    """Who waits for an app does not slow it: asking a broker takes as long as some epochs."""
    begun, asked, finish = threading.Event(), [], threading.Event()

    def slowly(table):
        begun.set()
        assert finish.wait(PATIENCE)
        return table

    app = hr.App("slow", storage=tmp_path)
    app.stream("numbers", "n int").map_batches(slowly, "n int").to_view("numbers")
    with hr.Log(tmp_path / "log") as log:
        log.create_topic("numbers", "n int").append([{"n": 1}])
    with app.start(carrier="in-process") as running:
        assert begun.wait(PATIENCE)
        ask = Engine.has_caught_up
        monkeypatch.setattr(Engine, "has_caught_up", lambda self, again: asked.append(again) or ask(self, again=again))
        try:
            with pytest.raises(TimeoutError):
                running.await_caught_up(timeout=0.1)
        finally:
            while_it_ran = list(asked)
            finish.set()
        assert while_it_ran == []
        running.await_caught_up(timeout=PATIENCE)
        assert asked


def test_a_carrier_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(InvalidPlan, match=r'carrier="?\'?local'):
        supervising.make(tmp_path).start(carrier="local")


def test_sources_of_sparks_need_spark(tmp_path):
    app = hr.App("rates", storage=tmp_path / "storage")
    app.read("rate", "timestamp timestamp, value bigint").to_view("v")
    with pytest.raises(HeadraceError, match=r"(?i)spark"):
        app.start(carrier="in-process")
    assert app.status()["running"] is False


def test_kill_9_of_a_program_without_spark_leaves_no_trace_in_the_outputs(tmp_path):
    """Killed twice, at whatever it does then."""
    storage, count = tmp_path / "storage", 40
    supervising.make(storage).start(carrier="in-process").stop()
    for part in range(3):
        supervising.append(storage, supervising.rows_of(part * count, part * count + count))
        with program(storage) as running:
            wait_for(lambda: supervising.total(storage) > part * count, running)  # noqa: B023 -- called at once
            if part < 2:
                running.kill()
                running.wait()
                assert supervising.make(storage).status()["state"] == "killed"
                continue
            wait_for(lambda: supervising.make(storage).status()["lag"] == 0, running)
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=PATIENCE)
    assert supervising.outputs(storage) == expected(tmp_path, 3 * count)


@pytest.mark.spark
@pytest.mark.parametrize(
    "order",
    [("in-process", "spark", "in-process"), pytest.param(("spark", "in-process", "spark"), marks=pytest.mark.prove)],
)
def test_an_app_moves_between_the_carriers_without_a_reset(spark, tmp_path, order):
    """Killed on the way: the middle part is begun by a program that is killed, on the first part's carrier."""
    storage = tmp_path / "storage"
    supervising.make(storage).start(carrier="in-process").stop()
    for part, carrier in enumerate(order):
        supervising.append(storage, supervising.rows_of(part * 300, part * 300 + 300))
        if part == 1:
            with program(storage, order[0]) as running:
                wait_for(lambda: supervising.total(storage) > 300, running)
        with supervising.make(storage).start(spark if carrier == "spark" else None, carrier=carrier) as running:
            running.await_caught_up(timeout=PATIENCE)
    assert supervising.outputs(storage) == expected(tmp_path, 900)
