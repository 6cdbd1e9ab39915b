"""`headrace run`: an app on Spark, with what it does in sight, until it is told to stop."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from headrace.base.text import counted
from headrace.base.time import SystemClock
from headrace.cli.output import console, example, json_option, note, on_terminal, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.cli.values import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from headrace.app import App
    from headrace.engine.running import Running

LOOK_SECONDS = 0.25
SAY_SECONDS = 2.0
STOPS = (signal.SIGINT, signal.SIGTERM)


@click.command(epilog=example("headrace run app.py", "headrace run app.py --until-caught-up --json"))
@program_argument
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the topics has been processed.")
@json_option
def run(file: str, *, storage: Path | None, until_caught_up: bool, as_json: bool) -> None:
    """Run the app in FILE on Spark; Ctrl-C or SIGTERM stop it at an epoch's end, and the next run goes on from there.

    On a terminal one line shows the epoch, rows a second, lag and watermark; elsewhere lines come every two seconds
    in which something happened; with --json each is an object.
    """
    app = load_app(file, storage=storage)
    show = _json_lines if as_json else _live if on_terminal() else _lines
    stop = Stop(quiet=as_json)
    with stop.listening():
        if not as_json:
            note(f"starting Spark for app {app.name} …")
        with _started(app) as running:
            stop.listen()  # Spark has put its own handler for SIGINT in place
            show(running, _until(running, stop, caught_up=until_caught_up))
    last = app.status()
    if as_json:
        say_json({"event": "stopped", **last}, indent=None)
    else:
        said = "caught up" if until_caught_up and not stop.told else "stopped"
        rows = sum(source["rows"] for source in last["sources"].values())
        say(f"{said} after epoch {shown(last['epoch'])}: {counted(rows, 'row')} read in all, lag {last['lag']}")


def _started(app: App) -> Running:
    return app.start()


class Stop:
    """Hears SIGINT and SIGTERM; the first asks for the end of the epoch, more are told to be patient."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._event = threading.Event()
        self._quiet = quiet

    @property
    def told(self) -> bool:
        """Whether a signal has come."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, for so long at most; return whether one has come."""
        return self._event.wait(seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear signals inside, and give them back to whom they belonged."""
        before = {each: signal.getsignal(each) for each in STOPS}
        self.listen()
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def listen(self) -> None:
        """Take the signals, now."""
        for each in STOPS:
            signal.signal(each, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- what signal asks for
        if not self._quiet:
            again = "is stopping, at the end of this epoch" if self.told else "stopping at the end of this epoch …"
            note(again)
        self._event.set()


def _until(running: Running, stop: Stop, *, caught_up: bool) -> Iterator[dict[str, Any]]:
    """Yield the status again and again, until it is time to end; the rate of rows is added to it."""
    clock = SystemClock()
    at, rows = clock.monotonic(), None
    rate = 0.0
    while True:
        ended = stop.told or _waited(running, stop, caught_up=caught_up)
        now = running.status()
        read, moment = sum(source["rows"] for source in now["sources"].values()), clock.monotonic()
        if rows is None:
            at, rows = moment, read
        elif moment - at >= SAY_SECONDS or (ended and moment > at):
            rate, at, rows = (read - rows) / (moment - at), moment, read
        yield {**now, "rows_per_second": rate}
        if ended:
            return


def _waited(running: Running, stop: Stop, *, caught_up: bool) -> bool:
    if caught_up:
        try:
            running.await_caught_up(LOOK_SECONDS)
        except TimeoutError:
            return False
        return True
    running.wait(_Briefly(stop))
    return stop.told


class _Briefly(threading.Event):
    """An event for `Running.wait` that is set after a moment, or when the app is told to stop."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 -- the moment is ours
        self._stop.wait(LOOK_SECONDS)
        self.set()
        return True


# ---- three ways to show it ----


def _summary(now: dict[str, Any]) -> str:
    marks = [source["watermark"] for source in now["sources"].values()]
    low = None if not marks or None in marks else min(marks)
    epoch = "-" if now["epoch"] is None else now["epoch"]
    return f"epoch {epoch}  {now['rows_per_second']:,.0f} rows/s  lag {now['lag']:,}  watermark {shown(low)}"


def _live(running: Running, looks: Iterator[dict[str, Any]]) -> None:  # noqa: ARG001 -- one shape for all three
    with Live(Text("waiting for the first epoch"), console=console(), refresh_per_second=4, transient=True) as line:
        for now in looks:
            line.update(Text(_summary(now)))


def _lines(running: Running, looks: Iterator[dict[str, Any]]) -> None:  # noqa: ARG001 -- the same
    say("running")
    _now_and_then(looks, lambda now: say(_summary(now)))


def _json_lines(running: Running, looks: Iterator[dict[str, Any]]) -> None:
    say_json({"event": "started", **running.status()}, indent=None)
    _now_and_then(looks, lambda now: say_json({"event": "progress", **now}, indent=None))


def _now_and_then(looks: Iterator[dict[str, Any]], say_it: Callable[[dict[str, Any]], None]) -> None:
    """Say what is new, every two seconds at most, and what came last in any case."""
    clock = SystemClock()
    said, spoken, now = None, clock.monotonic() - SAY_SECONDS, None
    for now in looks:
        if now["epoch"] != said and clock.monotonic() - spoken >= SAY_SECONDS:
            say_it(now)
            said, spoken = now["epoch"], clock.monotonic()
    if now is not None and now["epoch"] != said:
        say_it(now)
