"""`headrace run`: it catches up, it stops when told, and goes on from there."""

import json
import signal
import subprocess
import sys
import threading

import pytest

from headrace.cli.stop import Stop
from headrace.log import Log

PATIENCE = 600


def start(*arguments):
    code = "from headrace.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def guarded():
    """Start runs that are killed if they outlast all patience."""
    timers = []

    def run(*arguments):
        process = start(*arguments)
        timers.append(threading.Timer(PATIENCE, process.kill))
        timers[-1].start()
        return process

    yield run
    for timer in timers:
        timer.cancel()


@pytest.mark.parametrize(
    ("carrier", "where"),
    [
        ("--local", "in this process"),
        pytest.param(None, "on Spark", marks=[pytest.mark.spark, pytest.mark.prove]),  # tests/cluster runs it there
    ],
    ids=["local", "on Spark"],
)
def test_a_run_stops_at_sigint_and_the_next_goes_on_until_it_has_caught_up(headrace, program, guarded, carrier, where):
    file, options = program(), [carrier] if carrier else []
    with guarded(file, "--json", *options) as running:
        started = json.loads(running.stdout.readline())
        assert (started["event"], started["running"]) == ("started", True)
        with Log("shop/log") as log:
            log.topic("orders").append([{"user": "ann", "price": 3, "at": "2026-01-31 10:00"}])
        seen = started
        while not seen["sources"]["orders"]["rows"]:
            seen = json.loads(running.stdout.readline())
        assert seen["event"] == "progress"
        running.send_signal(signal.SIGINT)
        rest, err = running.communicate()
        assert running.returncode == 0, err
        last = json.loads(rest.splitlines()[-1])
        assert (last["event"], last["running"], last["lag"]) == ("stopped", False, 0)
    with Log("shop/log") as log:
        log.topic("orders").append([{"user": "ann", "price": 4, "at": "2026-01-31 10:30"}])
    with guarded(file, "--until-caught-up", *options) as running:
        out, err = running.communicate()
        assert running.returncode == 0, err
        assert err.startswith(f"starting app shop {where}")
        assert out.startswith("running\n")
        assert "2 rows read in all, lag 0" in out.splitlines()[-1]
    rows = json.loads(headrace("views", "show", "spent", "--app", file, "--json").out)["rows"]
    assert [row["spent"] for row in rows] == [7]


def test_a_run_that_cannot_start_fails_with_one_error(headrace, program):
    result = headrace("run", program('import headrace as hr\napp = hr.App("idle")'))
    assert result.code == 1
    assert '[INVALID_PLAN] app "idle" sends its rows nowhere' in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_is_told_that_the_first_was_heard(number, capsys):
    before = signal.getsignal(number)
    stop = Stop()
    with stop.listening():
        assert not stop.requested
        for _ in range(2):
            signal.raise_signal(number)
        assert stop.requested
        assert stop.wait(0)
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err.splitlines() == [
        "stopping at the end of this epoch …",
        "is stopping, at the end of this epoch",
    ]


def test_a_profile_says_where_the_time_went(headrace, program):
    file = program()
    headrace("topics", "create", "orders", "--app", file)
    with Log("shop/log") as log:
        log.topic("orders").append([{"user": "ann", "price": 3, "at": "2026-01-31 10:00"}])
    ran = headrace("run", file, "--local", "--until-caught-up", "--profile", "--json")
    profile = next(line for line in map(json.loads, ran.out.splitlines()) if line["event"] == "profile")
    assert profile["rows"] == 1
    assert profile["epochs"] >= 1
    assert {"read", "step spent", "step orders_of", "exchange", "state", "staging"} <= set(profile["tasks"])
    assert set(profile["seconds"]) == {"levels", "commit", "publish"}
    assert all(seconds > 0 for seconds in [*profile["tasks"].values(), *profile["seconds"].values()])
    with Log("shop/log") as log:
        log.topic("orders").append([{"user": "bob", "price": 4, "at": "2026-01-31 10:01"}])
    assert "in tasks: step spent" in headrace("run", file, "--local", "--until-caught-up", "--profile").out
