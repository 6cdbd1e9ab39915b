"""Processes beside a worker of Spark's: the same outputs, whichever process runs a shard, and nothing left behind."""

import dataclasses
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
from small_epochs import SIZES, Kept, feed, made, settings

import headrace as hr
from headrace.base.errors import StepFailed
from headrace.base.outside import WorkerLost
from headrace.engine import redo
from headrace.engine.engine import Engine
from headrace.engine.inprocess import InProcess
from headrace.engine.watermarks import EpochTimes
from headrace.kernels.level import LevelRun

processes = pytest.importorskip("headrace.engine.spark.shard_processes")

from pyspark.errors import PySparkException  # noqa: E402

from headrace.engine.spark import single_task, tasks  # noqa: E402 -- without Spark the tests are skipped
from headrace.engine.spark.blobs import reports_of  # noqa: E402
from headrace.engine.spark.failures import explained  # noqa: E402

MANY = 1_500
"""More files than `select` can wait for."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process is handed one end of a socket")


@pytest.fixture
def beside(monkeypatch):
    """The processes of this test; two shards at once, however many cores there are."""
    monkeypatch.setenv(processes.VARIABLE, "2")
    own = processes.ShardProcesses()
    monkeypatch.setattr(single_task, "PROCESSES", own)
    yield own
    own.close()


def job_of(engine, **more):
    """Return the job of an app on Spark, for tasks without Spark around them."""
    known = {
        "app_id": engine.storage.about()["id"],
        "program": engine.program,
        "storage": engine.settings.storage,
        "topics": None,
        "sync": engine.settings.sync,
        "inputs": engine.outside.inputs,
        "fault": engine.settings.fault,
        "base": 0,
        "small": 1_000,
        "query": f"of {engine.settings.storage}",
        "processes": 4,
        "beside": True,
    }
    return tasks.Job(**{**known, **more})


def ran(engine, job):
    """Run the next epoch as one task, commit it, and return its reports."""
    work = engine.begin()
    (row,) = single_task.read_single_task(job, work.epoch, work.ranges, EpochTimes(work.now))
    reports = reports_of(bytes(row.column(2)[0].as_buffer()))
    engine.publish(engine.commit(work, reports, carrier="test"))
    return reports


@pytest.fixture
def counting(tmp_path):
    """An app that fails on "x" behind an exchange, and its engine."""
    app, sink = hr.App("counting", storage=tmp_path / "s", shards=2), Kept("made")
    counts = app.stream("words", "k int, word string").group_by("k").agg(n="count(*)", last="max(word)")
    counts.select("k", "n", whole="if(last = 'x', cast(last as int), n)").group_by("n").agg(of="sum(whole)").to(sink)
    engine = Engine(app.plan(), settings(tmp_path / "s"))
    yield engine
    engine.close()


def words(engine, *texts):
    engine.outside.log.topic("words").append([{"k": k, "word": text} for text in texts for k in range(40)])


def alive(number):
    """Whether a process runs: neither gone, nor waited for by the one that started it."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- the same outputs ----


@pytest.mark.parametrize("how", ["beside", "in turns"])
def test_processes_beside_give_what_one_process_gives(beside, tmp_path, how):
    """In turns: threads of the task, processes and another carrier go on from one another's state."""
    app, expected = made(tmp_path / "one")
    engine = Engine(app.plan(), settings(tmp_path / "one"))
    carrier = InProcess(engine)
    for number, size in enumerate(SIZES):
        feed(engine.outside.log, number, size)
        carrier.step()
    carrier.close()
    engine.close()

    app, sinks = made(tmp_path / "s")
    engine = Engine(app.plan(), settings(tmp_path / "s"))
    carrier, job, asked = InProcess(engine), job_of(engine), 0
    for number, size in enumerate(SIZES):
        feed(engine.outside.log, number, size)
        turn = number % 4 if how == "in turns" else 0
        if turn == 3:
            carrier.step()
        elif turn == 1:
            beside.close()
            ran(engine, dataclasses.replace(job, beside=False))
        else:
            ran(engine, job)
            asked += 1
            assert len(beside.processes) == 1
    carrier.close()
    engine.close()
    assert asked == {"beside": 10, "in turns": 5}[how]
    assert [sink.epochs for sink in sinks] == [sink.epochs for sink in expected]


def test_what_a_process_beside_writes_is_in_the_log_of_the_epoch(beside, tmp_path):
    app, _ = made(tmp_path / "s")
    engine = Engine(app.plan(), dataclasses.replace(settings(tmp_path / "s"), sync=True))
    feed(engine.outside.log, 1, 40)
    ran(engine, job_of(engine))
    assert beside.processes
    written = redo.contents(redo.logs(tmp_path / "s"))
    engine.close()
    state = {name: content for name, content in written.items() if name.startswith("state/")}
    assert {name.split("/")[2] for name in state} == {"0", "1"}
    assert all((tmp_path / "s" / name).read_bytes() == content.to_pybytes() for name, content in state.items())


def test_a_process_beside_runs_its_own_shards(beside, counting, monkeypatch):
    here, plain = [], LevelRun.run

    def run(self, inputs):
        here.append((self.level.number, self.task.shard))
        return plain(self, inputs)

    monkeypatch.setattr(LevelRun, "run", run)
    words(counting, "a")
    reports = ran(counting, job_of(counting))
    assert beside.processes
    assert {shard for level, shard in here if level} == {0}
    assert {report.shard for report in reports} == {0, 1}
    assert {report.shard for report in reports if report.heads} == {0, 1}


def test_functions_of_a_user_are_called_in_the_task_alone(beside, tmp_path):
    """They may keep what they like between their calls."""
    seen = []

    class Seen:
        def __call__(self, word):
            seen.extend(word.to_pylist())
            return word

    app, sink = hr.App("users", storage=tmp_path / "s", shards=2), Kept("made")
    app.function("seen", Seen(), returns="string")
    lasts = app.stream("words", "k int, word string").group_by("k").agg(last="max(word)")
    lasts.select("k", last="seen(last)").to(sink)
    engine = Engine(app.plan(), settings(tmp_path / "s"))
    words(engine, "a", "b")
    ran(engine, job_of(engine))
    engine.close()
    assert seen == ["b"] * 40
    assert beside.processes


def test_functions_of_a_user_may_hold_what_cannot_be_pickled(beside, tmp_path):
    """They were pickled before their first call; what they open then stays in the task."""

    class Opens:
        lock = None

        def __call__(self, word):
            self.lock = self.lock or threading.Lock()
            return word

    app, sink = hr.App("users", storage=tmp_path / "s", shards=2), Kept("made")
    app.function("opens", Opens(), returns="string")
    opened = app.stream("words", "k int, word string").select("k", word="opens(word)")
    lasts = opened.group_by("k").agg(last="max(word)")
    lasts.select(last="opens(last)").group_by("last").agg(n="count(*)").to(sink)
    engine = Engine(app.plan(), settings(tmp_path / "s"))
    assert [level.calls_users for level in engine.program.levels] == [True, True, False]
    words(engine, "a", "b")
    ran(engine, job_of(engine))
    engine.close()
    assert beside.processes
    assert sink.epochs == {0: ["{'last': 'b', 'n': 40, '_weight': 1}"]}


# ---- when they are started ----


def test_they_are_started_when_levels_have_taken_long_enough(beside, counting, monkeypatch):
    job = job_of(counting, beside=False)
    words(counting, "a")
    ran(counting, job)
    assert 0 < beside.spent < processes.WORTH_SECONDS
    assert not beside.processes
    monkeypatch.setattr(processes, "WORTH_SECONDS", beside.spent)
    words(counting, "b")
    ran(counting, job)
    assert len(beside.processes) == 1, "this epoch still ran in threads"
    assert beside.are_ready(wait=True)
    spent = beside.spent
    words(counting, "c")
    ran(counting, job)
    assert beside.spent == spent, "this one did not"


def test_many_bytes_are_left_to_threads(beside, counting, monkeypatch):
    monkeypatch.setattr(single_task, "MOST_BYTES", 0)
    words(counting, "a")
    ran(counting, job_of(counting))
    assert not beside.processes
    assert not beside.spent, "and say nothing about small epochs"


@pytest.mark.parametrize(("chosen", "cores", "memory", "most"), [
    ("", 4, 64 << 30, 4), ("", 64, 64 << 30, 8), ("", 4, 2 << 30, 2), ("", 4, 100 << 20, 0),
    ("1", 4, 64 << 30, 1), ("16", 4, 64 << 30, 16), ("0", 4, 64 << 30, 1), ("many", 4, 64 << 30, 4),
])  # fmt: skip
def test_how_many_there_may_be(monkeypatch, chosen, cores, memory, most):
    monkeypatch.setenv(processes.VARIABLE, chosen)
    monkeypatch.setattr(processes, "cores", lambda: cores)
    monkeypatch.setattr(processes, "memory_limit", lambda: memory)
    assert processes.most_processes() == most


def test_an_app_uses_no_more_than_it_has_shards(beside, counting, monkeypatch):
    monkeypatch.setenv(processes.VARIABLE, "4")
    words(counting, "a")
    ran(counting, job_of(counting))
    assert len(beside.processes) == 1
    beside.start(job_of(counting, program=dataclasses.replace(counting.program, shards=4)))
    words(counting, "b")
    ran(counting, job_of(counting))
    assert len(beside.processes) == 3


def test_a_worker_may_have_many_files_open(beside, counting, monkeypatch):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[0] <= MANY:
        pytest.skip("this process may not open so many")
    plain = socket.socketpair

    def pair():
        one, other = plain()
        with one, other:
            return [socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, MANY)) for end in (one, other)]

    monkeypatch.setattr(socket, "socketpair", pair)
    beside.start(job_of(counting))
    until = time.monotonic() + 60
    while not beside.are_ready() and time.monotonic() < until:
        time.sleep(0.02)
    words(counting, "a")
    assert ran(counting, job_of(counting))
    assert len(beside.processes) == 1


def test_one_worker_alone_has_them_for_an_app(beside, counting):
    """Spark gives the small epochs of an app to all of its idle workers in turn."""
    another = processes.ShardProcesses()
    words(counting, "a")
    ran(counting, job_of(counting))
    assert len(beside.processes) == 1
    another.start(job_of(counting))
    assert not another.processes
    assert not another.refused
    beside.close()
    another.start(job_of(counting))
    assert len(another.processes) == 1
    words(counting, "b")
    assert ran(counting, job_of(counting)), "in threads"
    assert not beside.processes
    another.close()


@pytest.mark.parametrize("how", ["cannot start", "ends at once"])
def test_without_them_threads_go_on(beside, counting, monkeypatch, how):
    if how == "ends at once":
        monkeypatch.setattr(processes, "_SCRIPT", "raise SystemExit({})")
    else:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
    words(counting, "a")
    ran(counting, job_of(counting))
    assert beside.refused
    assert not beside.processes
    words(counting, "b")
    assert ran(counting, job_of(counting))
    assert not beside.processes, "it is not tried again"


# ---- failures ----


def test_what_fails_there_is_what_would_fail_here(beside, counting, monkeypatch):
    """Spark takes it to the driver as text, where it becomes our error again."""
    monkeypatch.setattr(beside, "close", lambda: None)
    words(counting, "x")
    work, failures = counting.begin(), []
    for job in (job_of(counting, beside=False), job_of(counting)):
        with pytest.raises((StepFailed, processes.FailedBeside)) as failed:
            [*single_task.read_single_task(job, work.epoch, work.ranges, EpochTimes(work.now))]
        failures.append(failed.value)
    with pytest.raises(processes.FailedBeside) as failed:
        beside.processes[0].answer()
    monkeypatch.undo()
    error = explained(failed.value)
    assert type(error) is type(failures[0]) is StepFailed
    assert str(error).splitlines()[0] == str(failures[0]).splitlines()[0]


@pytest.mark.usefixtures("beside")
def test_an_error_that_is_not_ours_is_shown_with_its_reason(counting):
    here = os.getpid()

    def fault(point):
        if os.getpid() != here:
            raise ValueError(f"no {point}")

    words(counting, "a")
    work = counting.begin()
    with pytest.raises(processes.FailedBeside) as failed:
        [*single_task.read_single_task(job_of(counting, fault=fault), work.epoch, work.ranges, EpochTimes(work.now))]
    text = "".join(traceback.format_exception(failed.value))
    assert "Spark ended the query: ValueError: no " in str(explained(PySparkException(text)))


def test_after_a_failure_no_answer_is_taken_for_another(beside, counting):
    words(counting, "x")
    work = counting.begin()
    with pytest.raises((StepFailed, processes.FailedBeside)):
        [*single_task.read_single_task(job_of(counting), work.epoch, work.ranges, EpochTimes(work.now))]
    assert not beside.processes
    assert not beside.refused, "others can be started"


def test_one_that_dies_between_epochs_is_not_asked(beside, counting):
    words(counting, "a")
    ran(counting, job_of(counting))
    (one,) = beside.processes
    one.process.send_signal(signal.SIGKILL)
    one.process.wait()
    words(counting, "b")
    assert ran(counting, job_of(counting, beside=False)), "threads run the epoch"
    assert not beside.processes
    assert not beside.refused, "others can be started"


def test_one_that_dies_in_an_epoch_is_a_lost_worker(beside, counting, monkeypatch):
    words(counting, "a")
    ran(counting, job_of(counting))
    (one,) = beside.processes
    plain = processes.ShardProcess.ask

    def ask(self, *given):
        monkeypatch.setattr(processes.ShardProcess, "ask", plain)
        plain(self, *given)
        self.process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(processes.ShardProcess, "ask", ask)
    words(counting, "b")
    work = counting.begin()
    with pytest.raises(WorkerLost, match="ended with status -9"):
        [*single_task.read_single_task(job_of(counting), work.epoch, work.ranges, EpochTimes(work.now))]
    assert ran(counting, job_of(counting)), "the epoch runs again"
    assert len(beside.processes) == 1
    assert beside.processes != [one]


def test_they_end_with_the_process_that_started_them():
    script = (
        "import time; from headrace.engine.spark.shard_processes import ShardProcess; one = ShardProcess(); "
        "one.is_ready(wait=True); print(one.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        child = int(owner.stdout.readline())
        assert alive(child)
        owner.kill()
    until = time.monotonic() + 60
    while alive(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(child)


def test_they_end_without_a_word():
    script = (
        "import os; from headrace.engine.spark.shard_processes import ShardProcess; "
        "ShardProcess().is_ready(wait=True); os._exit(0)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_job_that_was_forgotten_is_told_again(beside, counting):
    """Both ends keep the same few: those that were asked for last."""
    for number in [0, 1, 0, 2, 3, 4, 5, 0, 1, 5]:
        words(counting, str(number))
        ran(counting, job_of(counting, query=f"query {number}"))
    assert len(beside.processes[0].jobs) == processes.MOST_JOBS


def test_a_process_that_somebody_forks_keeps_none_of_them_alive():
    """A user's function may fork, as `multiprocessing` does: what it forks may outlive the worker."""
    own, (until, gone) = processes.ShardProcess(), os.pipe()
    assert own.is_ready(wait=True)
    forked = os.fork()
    if not forked:
        os.close(gone)
        os.read(until, 1)
        os._exit(0)
    try:
        own._end.close()  # noqa: SLF001 -- as the system does when this process ends
        own.process.wait(20)
    finally:
        os.close(gone)
        os.close(until)
        os.waitpid(forked, 0)
        own.close()
    assert own.process.returncode == 0
