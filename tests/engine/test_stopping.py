"""Who may stop an app that runs: the handler of a signal, the end of the program, and no epoch of its own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError, InvalidPlan
from headrace.log import Log

PROGRAM = """
import atexit, os, signal, sys, threading, time
from pathlib import Path

import headrace as hr

def leave(number, frame):
    running.stop()
    Path(sys.argv[1], "stopped").write_text(str(running.status()["running"]))
    sys.exit(0)

if __name__ == "__main__":
    app = hr.App("stopped", storage=Path(sys.argv[1], "app"))
    app.stream("in", "k int").group_by("k").agg(n="count(*)").to_view("counts")
    running = app.start()
    running.await_caught_up()
    if sys.argv[2] == "atexit":
        atexit.register(running.stop)
    else:
        signal.signal(signal.SIGTERM, leave)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        while True:  # nearly always within a call of Spark's
            running._carrier.check()
"""

ENDED = """
import sys
from pathlib import Path

import headrace as hr
from headrace.base.errors import NotRunning

if __name__ == "__main__":
    app = hr.App("stopped", storage=Path(sys.argv[1], "app"))
    app.stream("in", "k int").group_by("k").agg(n="count(*)").to_view("counts")
    running = app.start()
    running.await_caught_up()
    running._carrier.spark.stop()
    try:
        running.await_caught_up(30)
        running._carrier.check()
    except NotRunning as error:
        sys.stdout.write(str(error))
    running.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize("way", ["signal", pytest.param("atexit", marks=pytest.mark.prove)])
def test_a_program_on_spark_stops_its_app_by_a_signal_and_at_its_end(tmp_path, way):
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, way], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert way == "atexit" or (tmp_path / "stopped").read_text() == "False"
    app = hr.App("stopped", storage=tmp_path / "app")
    app.stream("in", "k int").group_by("k").agg(n="count(*)").to_view("counts")
    assert app.status()["state"] == "stopped"


@pytest.mark.spark
def test_a_session_that_is_stopped_under_its_app_is_told(tmp_path):
    done = subprocess.run([sys.executable, "-c", ENDED, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the Spark session of the app was stopped while the app ran" in done.stdout


def test_run_in_a_thread_says_what_to_do_instead(tmp_path):
    app = hr.App("stopped", storage=tmp_path)
    app.stream("in", "k int").to_topic("out")
    with ThreadPoolExecutor() as pool, pytest.raises(InvalidPlan, match="only the main thread"):
        pool.submit(app.run, carrier="in-process").result()


def test_an_epoch_that_stops_its_own_app_is_refused_and_the_program_can(tmp_path):
    started = []

    def stop(values):
        started[0].stop()
        return values

    app = hr.App("stopped", storage=tmp_path)
    app.function("stop", stop, returns="int", takes="int")
    app.stream("in", "k int").select(k="stop(k)").to_topic("out")
    with app.start(carrier="in-process") as running:
        started.append(running)
        Log(tmp_path / "log").topic("in").append([{"k": 1}])
        with pytest.raises(HeadraceError, match="an epoch that runs cannot stop its app"):
            running.await_caught_up(timeout=30)
    assert running.status()["running"] is False
