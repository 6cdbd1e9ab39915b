"""Who may stop an app that runs: the handler of a signal, the end of the program, and no epoch of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError
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


@pytest.mark.spark
@pytest.mark.parametrize("way", ["signal", "atexit"])
def test_a_program_on_spark_stops_its_app_by_a_signal_and_at_its_end(tmp_path, way):
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, way], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert way == "atexit" or (tmp_path / "stopped").read_text() == "False"
    app = hr.App("stopped", storage=tmp_path / "app")
    app.stream("in", "k int").group_by("k").agg(n="count(*)").to_view("counts")
    assert app.status()["state"] == "stopped"


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
