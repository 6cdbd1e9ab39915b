"""The long proof of a broker's feed: many messages, kills of our process and of the broker meanwhile."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from broker_cases import Filled, bodies, ids_of, until

if TYPE_CHECKING:
    from broker_cases import Broker

ADDED = 500


class Restartable(Protocol):
    """A server of scripts/servers."""

    def restart(self) -> None:
        """Kill it and start it again."""
        ...


def kills_and_restarts(
    broker: Broker, server: Restartable, folder: Path, *, messages: int, kills: int, restarts: int, seed: int = 1
) -> None:
    """Add messages while a feed runs in a process that is killed again and again, and its broker too.

    The kills come when random parts of the messages were added. In the end each message was landed; once if the feed
    says so.
    """
    drawn = random.Random(seed)  # noqa: S311 -- a seeded schedule
    filled = Filled(folder / "log")
    events = dict.fromkeys(drawn.sample(range(1, messages // ADDED), kills), "kill")
    events |= dict.fromkeys(drawn.sample(sorted(set(range(1, messages // ADDED)) - set(events)), restarts), "restart")
    process = _started(broker, folder)
    try:
        for at in range(messages // ADDED):
            if events.get(at) == "kill":
                _await_progress(filled, drawn, at * ADDED)
                process.kill()
                process.wait()
                process = _started(broker, folder)
            elif events.get(at) == "restart":
                server.restart()
            some = range(at * ADDED, (at + 1) * ADDED)
            broker.add(bodies(some), [f"m{each}" for each in some])
    finally:
        process.kill()
        process.wait()
    with filled.by(broker.feed()) as run:
        until(lambda: run.failure() or len(set(ids_of(run.log))) >= messages, "all are landed", 300)
        assert run.failure() is None
    counts = Counter(filled.ids())
    assert len(counts) == messages, f"{messages - len(counts)} of {messages} are lost"
    if broker.exactly_once:
        assert set(counts.values()) == {1}, f"{sum(counts.values()) - messages} are there twice"


def _started(broker: Broker, folder: Path) -> subprocess.Popen[bytes]:
    """Run the feed in a process as an app does: what may pass is tried again."""
    file = folder / "feed.pickle"
    file.write_bytes(pickle.dumps((broker.feed(), folder / "log")))
    return subprocess.Popen([sys.executable, __file__, str(file)])


def _await_progress(filled: Filled, drawn: random.Random, added: int) -> None:
    """Wait until the process has landed more, or all, then a moment that is another each time."""
    before = _rows(filled)
    until(lambda: _rows(filled) > before or _rows(filled) >= added, "the process lands something", 300)
    threading.Event().wait(drawn.random() * 0.3)


def _rows(filled: Filled) -> int:
    with filled.topics() as topics:
        if not topics.log.has_topic("landed"):
            return 0
        return sum(topics.log.topic("landed").end_offsets().values())


def main() -> None:
    """Run a feed until this process is killed."""
    feed, folder = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 -- the test wrote it
    with Filled(folder).by(feed):
        threading.Event().wait()


if __name__ == "__main__":
    main()
