"""The status of an app, as plain values: for `Running.status`, `headrace status` and dashboards."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from headrace.base.blame import HeadraceError
from headrace.base.dead_letters import CAUSES
from headrace.base.time import SystemClock, as_datetime
from headrace.engine.inputs import Inputs
from headrace.engine.operation.run_state import stored
from headrace.engine.outside import Outside
from headrace.engine.storage import Commit, Storage

if TYPE_CHECKING:
    from headrace.dsl.app import App
    from headrace.plan.plan import Plan
    from headrace.plan.sinks import Sink


def status(app: App) -> dict[str, Any]:
    """Return an app's status, read from its storage; the app may be running or not."""
    plan, storage = app.plan(), Storage(app.storage, app.name)
    last = storage.last_epoch()
    commit = Commit(epoch=-1) if last is None else storage.read_commit(last)
    clock = SystemClock()
    with closing(Outside(plan, app.storage, app.topics, clock=clock)) as outside:
        busy = storage.busy()
        with closing(Inputs(outside.inputs, clock=clock)) as inputs:
            now = describe(plan, commit, inputs)
        return {**now, **stored(storage, busy=busy), "running": busy}


def describe(plan: Plan, commit: Commit, inputs: Inputs) -> dict[str, Any]:
    """Return the status after a commit, with the lag of the sources."""
    sources = {plan.name(node): _source(plan.name(node), commit, inputs) for node in plan.sources()}
    lags = [source["lag"] for source in sources.values() if source["lag"] is not None]
    return {
        "app": plan.app,
        "epoch": commit.epoch if commit.epoch >= 0 else None,
        "at": as_datetime(commit.at) if commit.epoch >= 0 else None,
        "epoch_seconds": commit.seconds,
        "rows_per_second": commit.rows / commit.seconds if commit.seconds else 0.0,
        "limit": commit.limit,
        "lag": sum(lags),
        "sources": sources,
        "dead": _dead(commit),
        "steps": {plan.name(node): _step(plan.name(node), commit) for node in plan.stateful()},
        "sinks": {sink.name: _sink(sink, commit) for sink in plan.sinks},
    }


def _source(name: str, commit: Commit, inputs: Inputs) -> dict[str, Any]:
    totals = commit.totals.get(name, {})
    return {
        "rows": totals.get("rows_out", 0),
        "lag": _lag(name, commit, inputs),
        "dead": totals.get("dead", 0),
        "lost": totals.get("lost", 0),
        "watermark": _when(commit.outputs.get(name)),
    }


def _dead(commit: Commit) -> dict[str, Any]:
    """Return by source and step how many dead letters there are since the first start, the most frequent causes first.

    Fewer causes than letters: what is rare among many is not remembered.
    """
    found = {}
    for name, totals in commit.totals.items():
        if totals.get("dead"):
            reasons = commit.totals.get(f"{CAUSES}{name}", {})
            found[name] = {
                "rows": totals["dead"],
                "reasons": dict(sorted(reasons.items(), key=lambda reason: -reason[1])),
            }
    return found


def _lag(name: str, commit: Commit, inputs: Inputs) -> int | None:
    """Return how many records of a source are unread; None while the source does not answer."""
    try:
        bounds = inputs.bounds_of(name)
    except (HeadraceError, OSError):
        return None
    read = commit.sources[name].offsets if name in commit.sources else {}
    return sum(bounds.unread(partition, read.get(partition, 0)) for partition in bounds.end)


def _sink(sink: Sink, commit: Commit) -> dict[str, Any]:
    return {"rows": commit.totals.get(sink.name, {}).get("rows_in", 0), "guarantee": sink.guarantee}


def _step(name: str, commit: Commit) -> dict[str, Any]:
    totals = commit.totals.get(name, {})
    counts = {
        what: totals.get(what, 0) for what in ("rows_in", "rows_out", "late", "partly_late", "too_old", "state_rows")
    }
    return {**counts, "watermark": _when(commit.watermarks.get(name))}


def _when(micros: int | None) -> Any:
    return None if micros is None else as_datetime(micros)
