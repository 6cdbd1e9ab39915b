"""`headrace run`: run an app on Spark and show its progress until it is stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from headrace.base.text import counted
from headrace.base.time import SystemClock
from headrace.cli.carriers import carrier_options
from headrace.cli.diff import diff_lines
from headrace.cli.output import console, example, json_option, note, on_terminal, say, say_json
from headrace.cli.parameters import BUDGET
from headrace.cli.profile import say_profile
from headrace.cli.programs import load_app, program_argument
from headrace.cli.progress import LeftOut, Rate
from headrace.cli.status import check_owner
from headrace.cli.stop import Stop
from headrace.cli.values import shown
from headrace.engine.operation.restart import Restart
from headrace.engine.operation.running import supervised
from headrace.engine.program.comparing import compared
from headrace.engine.recovery.verify import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.cli.carriers import ChosenCarrier
    from headrace.engine.operation.supervision import Supervised
    from headrace.engine.program.changes import ProgramChanges

LOOK_SECONDS = 0.25
SAY_SECONDS = 2.0


@click.command(
    epilog=example(
        "headrace run app.py",
        "headrace run app.py --local",
        "headrace run app.py --until-caught-up --json",
        "headrace run app.py --master spark://host:7077 --conf spark.executor.memory=4g",
        'headrace run app.py --restart "5 within 10 minutes"',
    )
)
@program_argument
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the topics has been processed.")
@carrier_options
@click.option(
    "--restart",
    metavar="BUDGET",
    type=BUDGET,
    default=str(Restart()),
    show_default=True,
    help='How often to start again after a failure that may pass: "N within TIME", or "never".',
)
@click.option("--profile", is_flag=True, help="Say at the end where the time went.")
@click.option("--verify", is_flag=True, help="Check all that the app owns first, as headrace verify --repair does.")
@json_option
def run(
    file: str,
    *,
    storage: Path | None,
    until_caught_up: bool,
    carrier: ChosenCarrier,
    restart: Restart,
    verify: bool,
    as_json: bool,
    **shown: bool,
) -> None:
    """Run the app in FILE on Spark; Ctrl-C or SIGTERM stop it at an epoch's end, and the next run goes on from there.

    On a terminal one line shows the epoch, rows a second, lag and watermark; elsewhere a line is printed at most every
    two seconds, when an epoch has ended. With --json each line is an object.

    Records that became dead letters, and rows that were late, are reported with their number as it grows.

    A failure that may pass (a worker that did not start in time, a lost JVM, a full disk, a locked database, a sink
    that is down) is reported in one line, and the app starts again after a pause. Any other ends it with one error.
    """
    app = load_app(file, storage=storage)
    check_owner(app, None)
    if verify:
        check(app)
    _say_changes(compared(app.plan(), app.storage, app.shards), as_json=as_json)
    stop = Stop(quiet=as_json)
    with stop.listening():
        if not as_json:
            note(f"starting app {app.name} {carrier.where} …")
        started = supervised(
            app,
            stop=stop.event,
            carrier=carrier.name,
            restart=restart,
            open_spark=carrier.open_spark,
            on_start=stop.listen,  # Spark has installed its own handler for SIGINT
            on_retry=lambda retry: note(str(retry)),
        )
        with started as running:
            show = _json_lines if as_json else _live if on_terminal() else _lines
            plan = app.plan()
            topics = {plan.name(node): node.topic for node in plan.sources() if node.topic is not None}
            left_out = LeftOut(topics, file=file, clock=SystemClock())
            show(running, _until(running, stop, caught_up=until_caught_up), left_out)
            spent = running.status()["profile"]
    if shown["profile"]:
        say_profile(spent, as_json=as_json)
    _say_end(app.status(), stopped=stop.requested or not until_caught_up, as_json=as_json)


def _say_changes(changes: ProgramChanges, *, as_json: bool) -> None:
    """Print what has changed in the program since it ran last, as `headrace diff` does; nothing if nothing has."""
    changes.refuse()
    if changes.changed and as_json:
        say_json({"event": "changed", **changes.to_json()}, indent=None)
    elif changes.changed:
        for line in diff_lines(changes):
            note(line)


def _say_end(last: dict[str, Any], *, stopped: bool, as_json: bool) -> None:
    if as_json:
        say_json({"event": "stopped", **last}, indent=None)
    else:
        outcome = "stopped" if stopped else "caught up"
        rows = sum(source["rows"] for source in last["sources"].values())
        say(f"{outcome} after epoch {shown(last['epoch'])}: {counted(rows, 'row')} read in all, lag {last['lag']}")


def _until(running: Supervised, stop: Stop, *, caught_up: bool) -> Iterator[dict[str, Any]]:
    """Yield the status until it is time to stop, each with the current `rows_per_second`."""
    rate = Rate(SystemClock())
    ended = False
    while not ended:
        now = running.status()
        yield {**now, "rows_per_second": rate.of(now)}
        ended = stop.requested or _time_to_stop(running, stop, caught_up=caught_up)
    now = running.status()
    yield {**now, "rows_per_second": rate.of(now)}


def _time_to_stop(running: Supervised, stop: Stop, *, caught_up: bool) -> bool:
    if caught_up:
        try:
            running.await_caught_up(LOOK_SECONDS)
        except TimeoutError:
            return False
        return True
    running.wait(_AMoment(stop))
    return stop.requested


class _AMoment(threading.Event):
    """An event for `Running.wait` that is set after LOOK_SECONDS, or when a stop is requested."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 -- it always waits LOOK_SECONDS
        self._stop.wait(LOOK_SECONDS)
        self.set()
        return True


# ---- three ways to show it ----


def _summary(now: dict[str, Any]) -> str:
    watermarks = [source["watermark"] for source in now["sources"].values()]
    lowest = None if not watermarks or None in watermarks else min(watermarks)
    epoch = "-" if now["epoch"] is None else now["epoch"]
    return f"epoch {epoch}  {now['rows_per_second']:,.0f} rows/s  lag {now['lag']:,}  watermark {shown(lowest)}"


def _live(running: Supervised, statuses: Iterator[dict[str, Any]], left_out: LeftOut) -> None:  # noqa: ARG001 -- one shape
    last: dict[str, Any] | None = None
    with Live(Text("waiting for the first epoch"), console=console(), refresh_per_second=4, transient=True) as line:
        for last in statuses:
            line.update(Text("\n".join([_summary(last), *left_out.lines(last).values()])))
    for text in () if last is None else left_out.lines(last).values():
        note(text)


def _lines(running: Supervised, statuses: Iterator[dict[str, Any]], left_out: LeftOut) -> None:  # noqa: ARG001 -- the same
    say("running")
    last: dict[str, Any] | None = None

    def show(now: dict[str, Any]) -> None:
        say(_summary(now))
        _note_all(left_out.news(now, ended=False))

    def each() -> Iterator[dict[str, Any]]:
        nonlocal last
        for last in statuses:
            left_out.lines(last)  # what was there before this run is known from its first status
            yield last

    _throttled(each(), show)
    if last is not None:
        _note_all(left_out.news(last, ended=True))


def _note_all(lines: list[str]) -> None:
    for line in lines:
        note(line)


def _json_lines(running: Supervised, statuses: Iterator[dict[str, Any]], left_out: LeftOut) -> None:  # noqa: ARG001 -- the same
    say_json({"event": "started", **running.status()}, indent=None)
    _throttled(statuses, lambda now: say_json({"event": "progress", **now}, indent=None))


def _throttled(statuses: Iterator[dict[str, Any]], show: Callable[[dict[str, Any]], None]) -> None:
    """Show a status when its epoch is new, at most every two seconds, and the last one in any case."""
    clock = SystemClock()
    shown_epoch, shown_at, now = None, clock.monotonic() - SAY_SECONDS, None
    for now in statuses:
        if now["epoch"] != shown_epoch and clock.monotonic() - shown_at >= SAY_SECONDS:
            show(now)
            shown_epoch, shown_at = now["epoch"], clock.monotonic()
    if now is not None and now["epoch"] != shown_epoch:
        show(now)
