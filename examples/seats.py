"""Two buyers race for a seat: the events are the truth, and who loses gets an answer, not a crash.

python examples/seats.py
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import events


class SeatIsTaken(Exception):
    """Somebody else was faster."""


class Seat(events.Aggregate):
    """A seat is free, or reserved by one buyer."""

    def initial(self) -> dict[str, Any]:
        """Return the state of a seat of which nothing is recorded."""
        return {"by": None}

    def apply(self, state: dict[str, Any], event: events.Recorded) -> dict[str, Any]:
        """Return the state after an event; the one before does not matter here."""
        del state
        return {"by": event.data["by"] if event.type == "SeatReserved" else None}

    def handle(self, state: dict[str, Any], command: dict[str, Any]) -> list[events.Event]:
        """Reserve the seat for a buyer, if nobody has it."""
        if state["by"] is not None:
            raise SeatIsTaken(state["by"])
        return [events.Event("SeatReserved", {"by": command["buyer"]})]


def buy(store: events.EventStore, buyer: str, seat: str, said: list[str]) -> None:
    """Reserve a seat, or learn who has it."""
    try:
        answer = Seat().execute(store, seat, {"buyer": buyer})
        said.append(f"{buyer} has {seat}: version {answer.version}")
    except SeatIsTaken:
        said.append(f"{buyer} is too late for {seat}")


def main(folder: Path) -> list[str]:
    """Let ann and bob race for three seats, and show who has how many."""
    said: list[str] = []
    with events.EventStore(folder / "log") as store:
        for seat in ("12A", "12B", "12C"):
            buyers = [threading.Thread(target=buy, args=(store, who, seat, said)) for who in ("ann", "bob")]
            for each in buyers:
                each.start()
            for each in buyers:
                each.join()
        app = hr.App("seats", storage=folder / "app", topics=f"log:{folder / 'log'}")
        reserved = store.stream_in(app).with_columns(buyer="get_json_object(data, '$.by')")
        reserved.group_by("buyer").agg(seats="count(*)").to_view("buyers")
        with app.start(carrier="in-process") as running:
            running.await_caught_up()
        said.append(f"seats sold: {sum(row['seats'] for row in app.view('buyers').to_pylist())}")
    return said


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for line in main(Path(scratch)):
            print(line)  # noqa: T201 -- a program for people
