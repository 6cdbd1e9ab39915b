"""`events_append`: durable appends of one event with a version check, from 8 threads, against PostgreSQL.

Each thread appends to streams of its own, in turn, and expects the version that it knows. Ours is measured in two
ways: each thread waits for each answer, as PostgreSQL's clients do; and each sends up to 100 to other streams before it
waits for the first, which clients of PostgreSQL cannot do, as a transaction waits for its commit. PostgreSQL: a table
with the primary key (stream, version), an INSERT a transaction, synchronous_commit and fsync on, 8 connections,
prepared statements. Expected: 5 times its speed. Both sides are then counted: each stream has its versions once.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import psycopg
from scripts.broker.servers import Servers
from scripts.servers.packages import Unavailable
from scripts.servers.postgres import Postgres

from bench.figure import Figure, Skipped, compare_times, same
from headrace import events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.setting import Setting

THREADS, STREAMS, AHEAD = 8, 1_000, 100
SECONDS, QUICK_SECONDS = 5.0, 2.0
DATA = {"by": "somebody with a name", "amount": 12, "note": "a note of some length about what has happened"}
_RIVAL = "INSERT a transaction in PostgreSQL, fsync on, 8 connections"
_CREATE = (
    "CREATE TABLE events (stream text, version bigint, type text NOT NULL, data jsonb NOT NULL, "
    "at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (stream, version))"
)


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    server = Postgres(Servers(setting.fresh("postgres"), shared=False), fsync="on")
    try:
        server.start()
    except Unavailable as reason:
        return [Skipped(bench="events_append", rival=_RIVAL, reason=str(reason))]
    try:
        return _measured(setting, server)
    finally:
        server.kill()


def _measured(setting: Setting, server: Postgres) -> list[Figure | Skipped]:
    seconds = setting.runs(1, 0) * SECONDS or QUICK_SECONDS
    ways = {"each thread waits for each answer": 1, f"up to {AHEAD} on their way from a thread": AHEAD}
    theirs: list[float] = []
    ours: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(setting.runs(3, 2) + 1):
        rates = {way: _ours(setting, seconds, ahead) for way, ahead in ways.items()}
        rival = _theirs(server, seconds)
        shown = ", ".join(f"{rate:,.0f}" for rate in rates.values())
        setting.say(f"run {number}: ours {shown}, theirs {rival:,.0f} a second{'' if number else ' (warm-up)'}")
        if number:
            theirs.append(1e6 / rival)
            for way, rate in rates.items():
                ours[way].append(1e6 / rate)
    return [
        compare_times(
            "events_append",
            what=f"durable appends with a version check, {THREADS} threads, {way}",
            rival=_RIVAL,
            must=">= 5",
            ours=times,
            theirs=theirs,
            unit="µs an append",
        )
        for way, times in ours.items()
    ]


def _ours(setting: Setting, seconds: float, ahead: int) -> float:
    event = events.Event("Added", DATA)
    with events.EventStore(setting.fresh("events")) as store:

        def append(streams: Sequence[str], until: float) -> int:
            versions, number = dict.fromkeys(streams, 0), 0
            on_their_way: deque[tuple[str, int, object]] = deque()
            while time.perf_counter() < until:
                stream = streams[number % len(streams)]
                number += 1
                if ahead == 1:
                    answer = store.append(stream, [event], expected_version=versions[stream])
                    same("answer", answer, events.Appended(versions[stream] + 1))
                else:
                    sent = store.send(stream, [event], expected_version=versions[stream])
                    on_their_way.append((stream, versions[stream], sent))
                versions[stream] += 1
                if len(on_their_way) >= ahead > 1:
                    _answered(on_their_way)
            while on_their_way:
                _answered(on_their_way)
            return number

        count, took = _together(append, seconds)
        same("versions", sum(store.version(stream) for stream in _streams()), count)
    return count / took


def _answered(on_their_way: deque) -> None:
    stream, version, sent = on_their_way.popleft()
    same(f"answer of {stream}", sent.result(), events.Appended(version + 1))


def _theirs(server: Postgres, seconds: float) -> float:
    with psycopg.connect(server.url(), autocommit=True) as sql:
        sql.execute("DROP TABLE IF EXISTS events")
        sql.execute(_CREATE)
    text = json.dumps(DATA)

    def append(streams: Sequence[str], until: float) -> int:
        versions, number = dict.fromkeys(streams, 0), 0
        with psycopg.connect(server.url(), autocommit=True) as sql:
            while time.perf_counter() < until:
                stream = streams[number % len(streams)]
                versions[stream] += 1
                sql.execute(
                    "INSERT INTO events (stream, version, type, data) VALUES (%s, %s, %s, %s)",
                    [stream, versions[stream], "Added", text],
                    prepare=True,
                )
                number += 1
        return number

    count, took = _together(append, seconds)
    with psycopg.connect(server.url()) as sql:
        same("rows", sql.execute("SELECT count(*) FROM events").fetchone(), (count,))
    return count / took


def _streams(thread: int | None = None) -> list[str]:
    return [f"stream-{n}" for n in range(STREAMS) if thread is None or n % THREADS == thread]


def _together(append: Callable[[Sequence[str], float], int], seconds: float) -> tuple[int, float]:
    """Run it in all threads, each with streams of its own; return how many were appended, and in how many seconds."""
    counts: list[int] = []
    began = time.perf_counter()
    threads = [
        threading.Thread(target=lambda n=n: counts.append(append(_streams(n), began + seconds))) for n in range(THREADS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if len(counts) < THREADS:
        raise AssertionError("a thread has failed")
    return sum(counts), time.perf_counter() - began
