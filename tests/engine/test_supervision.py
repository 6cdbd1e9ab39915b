"""A failure that may pass is followed by another start; any other ends the app once, with one error."""

from __future__ import annotations

import errno
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
import supervising
from test_local import CLOCK, PATIENCE, expected, program, runs, wait_for

import headrace as hr
from headrace.base.errors import FunctionError, InvalidPlan, InvalidTime, StepFailed
from headrace.base.outside import AccessRefused, DiskFull, OutsideBusy, SinkFailed, Unavailable
from headrace.engine import publish
from headrace.engine.operation.failures import as_ours
from headrace.engine.operation.restart import Budget, Restart, restart_of
from headrace.engine.operation.running import supervised

QUICK = hr.Restart(tries=5, within="1 minute", first="10 milliseconds", most="50 milliseconds")


class Watched:
    """An app that is supervised in this process, and what it says of its restarts."""

    def __init__(self, app, restart=QUICK):
        self.retries = []
        self.app = app
        self.running = supervised(
            app,
            stop=threading.Event(),
            carrier="in-process",
            restart=restart,
            on_start=lambda: None,
            on_retry=self.retries.append,
        )

    def until(self, condition):
        """Run until a condition holds."""
        with self.running as running:
            while not condition():
                try:
                    running.await_caught_up(timeout=0.05)
                except TimeoutError:
                    continue
            return running.status()


# ---- the budget ----


def test_the_pause_doubles_until_an_epoch_is_committed():
    budget = Budget(Restart(tries=9, first="1 second", most="5 seconds"))
    assert [budget.spend(0, progressed=False) for _ in range(4)] == [1, 2, 4, 5]
    assert budget.spend(0, progressed=True) == 1


def test_a_spent_budget_ends_it_and_time_gives_it_back():
    budget = Budget(Restart(tries=2, within="10 minutes"))
    assert [budget.spend(at, progressed=True) for at in (0, 1, 2)] == [1, 1, None]
    assert budget.spend(601, progressed=True) == 1


@pytest.mark.parametrize(
    ("value", "tries", "within"), [(None, 20, "1 hour"), ("never", 0, "1 hour"), ("3 within 5 minutes", 3, "5 minutes")]
)
def test_a_budget_is_a_value_or_a_text(value, tries, within):
    assert (restart_of(value).tries, restart_of(value).within) == (tries, within)


@pytest.mark.parametrize("value", ["often", "-1", 5, "5 within", b"never"])
def test_a_budget_that_is_none_is_refused(value):
    with pytest.raises(InvalidPlan, match="restart="):
        restart_of(value)


def test_a_budget_of_impossible_times_is_refused():
    with pytest.raises(InvalidTime):
        hr.Restart(within="soon")
    with pytest.raises(InvalidPlan):
        hr.Restart(tries=-1)


# ---- what may pass ----


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DiskFull),
        (RuntimeError("IO Error: could not write: No space left on device"), DiskFull),
        (OSError(errno.EMFILE, "Too many open files"), OutsideBusy),
    ],
)
def test_what_the_machine_refuses_now_may_pass(error, kind):
    ours = as_ours(error)
    assert type(ours) is kind
    assert ours.may_pass
    assert ours.__cause__ is error


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_file_that_may_not_be_written_is_named_with_what_to_do(number):
    ours = as_ours(OSError(number, os.strerror(number), "/srv/app/lock"))
    assert type(ours) is AccessRefused
    assert not ours.may_pass
    assert ours.what == f"/srv/app/lock cannot be used: {os.strerror(number)}"
    assert "the user that owns it" in ours.hint


def test_an_app_whose_storage_was_moved_away_leaves_no_trace_in_its_place(tmp_path):
    """So the folder can be moved back."""
    storage = tmp_path / "storage"
    with program(storage) as running:
        wait_for(lambda: runs(storage), running)
        storage.rename(tmp_path / "moved")
        _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1
    assert "[SOURCE_REPLACED]" in err
    assert not storage.exists()


def test_what_does_not_pass_ends_the_app_once(tmp_path):
    app = hr.App("failing", storage=tmp_path / "storage", shards=1)
    app.stream("t", "v int").select(w="1 / v").to_topic("out")
    app.start(carrier="in-process").stop()
    with hr.Log(tmp_path / "storage" / "log") as log:
        log.topic("t").append([{"v": 0}])
    watched = Watched(app)
    with pytest.raises(StepFailed):
        watched.until(lambda: False)
    assert watched.retries == []
    status = app.status()
    assert (status["state"], status["restarts"], status["running"]) == ("failed", 0, False)


class Flaky:
    """A sink that fails so many times, with an error that may pass."""

    name = "flaky"

    def __init__(self, failures, error):
        self.failures, self.error, self.rows = failures, error, {}

    def write(self, epoch, rows):
        """Keep the rows of an epoch."""
        if self.failures:
            self.failures -= 1
            raise self.error
        self.rows[epoch] = rows.to_pylist()


@pytest.mark.parametrize("error", [Unavailable("it is down"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_sink_that_is_down_ends_nothing(tmp_path, monkeypatch, error):
    """It is down for longer than one start tries; status has counted the starts."""
    monkeypatch.setattr(publish, "GIVE_UP_SECONDS", 0.0)
    sink, app = Flaky(3, error), hr.App("sinks", storage=tmp_path / "storage", shards=1)
    app.stream("t", "v int").to(sink)
    app.start(carrier="in-process").stop()
    with hr.Log(tmp_path / "storage" / "log") as log:
        log.topic("t").append([{"v": 7}])
    watched = Watched(app)
    status = watched.until(lambda: sink.rows)
    assert [row["v"] for rows in sink.rows.values() for row in rows] == [7]
    assert [retry.number for retry in watched.retries] == [1, 2, 3]
    assert type(watched.retries[0].error) is SinkFailed
    assert (status["restarts"], status["state"]) == (3, "running")
    assert status["last_error"].startswith("[SINK_FAILED]")
    assert app.status()["state"] == "stopped"


def test_an_error_of_a_users_sink_is_the_users_with_its_line(tmp_path):
    """It was an internal error of ours, to be reported. The epoch is published first, once the sink is mended."""
    sink, app = Flaky(1, ValueError("no such city")), hr.App("sinks", storage=tmp_path / "storage", shards=1)
    app.table("t", "v int", key="v", values=[{"v": 7}]).to(sink)
    watched = Watched(app)
    with pytest.raises(FunctionError, match=rf"Flaky.write \({__file__}:\d+\) raised ValueError: no such city"):
        watched.until(lambda: sink.rows)
    assert watched.retries == []
    Watched(app).until(lambda: sink.rows)
    assert [row["v"] for rows in sink.rows.values() for row in rows] == [7]


def test_a_budget_that_is_spent_ends_the_app_with_the_last_error(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "GIVE_UP_SECONDS", 0.0)
    sink, app = Flaky(99, Unavailable("it is down")), hr.App("sinks", storage=tmp_path / "storage", shards=1)
    app.stream("t", "v int").to(sink)
    app.start(carrier="in-process").stop()
    with hr.Log(tmp_path / "storage" / "log") as log:
        log.topic("t").append([{"v": 7}])
    watched = Watched(app, hr.Restart(tries=2, first="1 ms", most="1 ms"))
    with pytest.raises(SinkFailed, match="2 within 1 hour"):
        watched.until(lambda: sink.rows)
    assert len(watched.retries) == 2
    assert app.status()["state"] == "failed"


def test_a_locked_view_database_ends_nothing(tmp_path, monkeypatch):
    """Another program holds a lock on it for longer than one start tries."""
    storage = tmp_path / "storage"
    monkeypatch.setattr("headrace.views.sqlite._WAIT_SECONDS", 0.05)
    monkeypatch.setattr(publish, "GIVE_UP_SECONDS", 0.0)
    app = supervising.make(storage)
    app.start(carrier="in-process").stop()
    supervising.append(storage, supervising.rows_of(0, 300))
    watched = Watched(app)
    with closing(sqlite3.connect(storage / "views.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(
            watched.running, "_on_retry", lambda retry: (watched.retries.append(retry), other.rollback())
        )
        watched.until(lambda: supervising.total(storage) == 300)
    assert watched.retries
    assert supervising.outputs(storage) == expected(tmp_path, 300)


def test_a_disk_that_is_full_for_a_while_ends_nothing(tmp_path, monkeypatch):
    """Full at the commit, the only write that nothing else tries again."""
    storage = tmp_path / "storage"
    app = supervising.make(storage)
    app.start(carrier="in-process").stop()
    supervising.append(storage, supervising.rows_of(0, 300))
    link, left = os.link, [2]

    def full(*arguments, **options):
        if Path(arguments[1]).parent.name == "epochs" and left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return link(*arguments, **options)

    monkeypatch.setattr(os, "link", full)
    watched = Watched(app)
    watched.until(lambda: supervising.total(storage) == 300)
    assert [type(retry.error) for retry in watched.retries] == [DiskFull, DiskFull]
    assert supervising.outputs(storage) == expected(tmp_path, 300)


def test_a_disk_that_is_full_at_the_start_is_an_error_of_ours(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(DiskFull):
        supervising.make(tmp_path / "storage").start(carrier="in-process")


FULL = """
import resource, sys, signal
sys.path.insert(0, sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import supervising, headrace as hr
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
supervising.make(Path(sys.argv[1])).run(
    carrier="in-process", restart=hr.Restart(tries=3, first="1 ms", most="1 ms")
)
"""


def test_a_file_that_cannot_be_written_ends_the_app_with_one_error_and_no_damage(tmp_path):
    """The system refuses files of more than 1 500 bytes: whatever it stops at, the next run goes on to the result."""
    storage = tmp_path / "storage"
    supervising.make(storage).start(carrier="in-process").stop()
    supervising.append(storage, supervising.rows_of(0, 300))
    done = subprocess.run(
        [sys.executable, "-c", FULL, storage, os.path.dirname(supervising.__file__)],  # noqa: PTH120 -- a text
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(r"^headrace\.base\.\w+\.\w+: \[[A-Z_]+\] ", done.stderr, re.MULTILINE), done.stderr
    with supervising.make(storage).start(carrier="in-process") as running:
        running.await_caught_up(timeout=PATIENCE)
    assert supervising.outputs(storage) == expected(tmp_path, 300)


def test_ctrl_c_while_spark_starts_is_a_stop(tmp_path, monkeypatch):
    """Spark's own handler of SIGINT raises KeyboardInterrupt until the app's handler is back."""
    watched = Watched(supervising.make(tmp_path / "storage"))

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(watched.running, "_start", interrupted)
    with watched.running as running:
        running.wait(threading.Event())
    assert watched.app.status()["state"] == "stopped"


# ---- Spark ----

WORKER = """\
#!/bin/sh
n=$(ls {marks} | wc -l)
if [ "$n" -lt {failures} ]; then touch {marks}/$$; exit 1; fi
exec {python} "$@"
"""
BROKEN = """
import sys
sys.path.insert(0, sys.argv[2])
import supervising
from pathlib import Path
from headrace.engine.spark.session import session
session(master="local[2]").sparkContext.pythonExec = sys.argv[3]
supervising.make(Path(sys.argv[1])).run()
"""


@pytest.mark.prove
@pytest.mark.spark
@pytest.mark.parametrize("failures", [1, 3])
def test_workers_that_do_not_start_end_nothing(tmp_path, failures):
    """The first ones end before they connect: at the start, and when the query plans its first epoch."""
    storage, marks, script = tmp_path / "storage", tmp_path / "marks", tmp_path / "python"
    marks.mkdir()
    script.write_text(WORKER.format(marks=marks, failures=failures, python=sys.executable))
    script.chmod(0o755)
    supervising.make(storage).start(carrier="in-process").stop()
    supervising.append(storage, supervising.rows_of(0, 300))
    right = expected(tmp_path, 300)
    folder = os.path.dirname(supervising.__file__)  # noqa: PTH120 -- a text
    with subprocess.Popen(
        [sys.executable, "-c", BROKEN, storage, folder, script], stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            wait_for(lambda: supervising.total(storage) == 300, running)
            wait_for(lambda: supervising.outputs(storage) == right, running)  # windows close an epoch later
            assert supervising.make(storage).status()["restarts"] >= 1
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
    assert running.returncode == 0, err
    assert "[SPARK_WORKER_LOST]" in err
    assert "Traceback" not in err
    assert supervising.outputs(storage) == right


@pytest.mark.parametrize("kilobytes", [8, 64])
def test_a_file_that_may_not_grow_ends_the_app_once_and_loses_nothing(tmp_path, kilobytes):
    """`ulimit -f` is met at the first files of a state, or by the database of views."""
    storage = tmp_path / "storage"
    supervising.make(storage).start(carrier="in-process").stop()
    supervising.append(storage, supervising.rows_of(0, 3000))
    limited = ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", sys.executable, supervising.__file__]
    done = subprocess.run([*limited, storage, "in-process", "5"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "[FILE_TOO_LARGE]" in done.stderr
    assert f"at most {kilobytes << 10} bytes (ulimit -f)" in done.stderr
    assert "; restart" not in done.stderr
    with supervising.make(storage).start(carrier="in-process") as running:
        running.await_caught_up(timeout=PATIENCE)
    assert supervising.outputs(storage) == expected(tmp_path, 3000)


def test_a_view_database_that_may_not_grow_says_why(tmp_path):
    code = """if True:
        import resource, sys
        from pathlib import Path
        from headrace.base.schema import as_schema
        from headrace.views.sqlite import SqliteViews

        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        SqliteViews(Path(sys.argv[1]) / "views.db").declare("v", as_schema("id int"), ("id",))
    """
    done = subprocess.run([sys.executable, "-c", code, tmp_path], stderr=subprocess.PIPE, text=True, check=False)
    assert "[FILE_TOO_LARGE] a file may not grow any more in the views" in done.stderr
    assert "at most 4096 bytes (ulimit -f)" in done.stderr


def children(process):
    """Return the programs that a process has started, by their ids."""
    listed = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid=,comm="], capture_output=True, text=True, check=True
    )
    return [(int(line.split()[0]), line.split()[1]) for line in listed.stdout.splitlines()]


@pytest.mark.spark
@pytest.mark.xdist_group("killed")
def test_a_killed_jvm_ends_nothing(tmp_path):
    """`kill -9` of the JVM in mid-run: another one is started, and the outputs are those of an undisturbed run."""
    storage = tmp_path / "storage"
    supervising.make(storage).start(carrier="in-process").stop()
    supervising.append(storage, supervising.rows_of(0, 300))
    with program(storage, "spark", "5 within 10 minutes") as running:
        wait_for(lambda: supervising.total(storage) == 300, running)
        (java,) = [number for number, name in children(running) if name == "java"]
        supervising.append(storage, supervising.rows_of(300, 600))
        os.kill(java, signal.SIGKILL)
        wait_for(lambda: supervising.total(storage) == 600, running)
        supervising.append(storage, supervising.rows_of(600, 900))
        wait_for(lambda: supervising.total(storage) == 900, running)
        CLOCK.sleep(0.5)
        seen = supervising.make(storage).status()
        assert (seen["state"], seen["restarts"]) == ("running", 1)
        assert seen["last_error"].startswith("[SPARK_LOST]")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    (line,) = [line for line in err.splitlines() if "restart" in line]
    assert "[SPARK_LOST]" in line
    assert "BrokenPipeError" not in err  # of workers that waited for a task
    assert not [line for line in err.splitlines() if line.strip().startswith(f'File "{Path(hr.__file__).parent}')]
    assert supervising.outputs(storage) == expected(tmp_path, 900)
