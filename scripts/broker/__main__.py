"""A Kafka of your own, from nothing.

`make kafka` starts it, or

    python -m scripts.broker start [FOLDER] [--brokers 3]     prints its address
    python -m scripts.broker stop [FOLDER]                    ends it and keeps its data; start brings it back
    python -m scripts.broker kill [FOLDER] [--broker 2]       kill -9 of one broker

FOLDER is .headrace/kafka unless it is given.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from scripts.broker.brokers import VERSION, Kafka
from scripts.broker.jars import Unavailable
from scripts.broker.servers import NotStarted, Servers

PORT = 9092
"""Kafka's usual port; others are taken where it is not free."""


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="scripts.broker", description="Kafka on this machine.")
    parser.add_argument("verb", choices=["start", "stop", "kill"])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".headrace/kafka"))
    parser.add_argument("--brokers", type=int, default=1, help="how many; only where the folder is new")
    parser.add_argument("--broker", type=int, default=1, help="which one to kill")
    given = parser.parse_args()
    made = given.folder / "cluster.json"
    brokers = len(json.loads(made.read_text())["ports"]) if made.exists() else given.brokers
    kafka = Kafka(Servers(given.folder, shared=False), brokers=brokers, port=PORT)
    if given.verb == "start":
        _start(kafka, given.folder)
    elif not made.exists():
        sys.exit(f"error: there is no Kafka in {given.folder}")
    elif given.verb == "stop":
        kafka.stop()
    else:
        kafka.kill(given.broker)


def _start(kafka: Kafka, folder: Path) -> None:
    try:
        kafka.start()
    except (Unavailable, NotStarted) as problem:
        sys.exit(f"error: {problem}")
    print(f"==> kafka: {VERSION}, {len(kafka.brokers)} broker(s), data and logs in {folder}", file=sys.stderr)
    print(f"==> kafka: to stop it: .venv/bin/python -m scripts.broker stop {folder}", file=sys.stderr)
    print(kafka.address)


if __name__ == "__main__":
    main()
