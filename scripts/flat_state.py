"""A day of simulated events: what windows, sessions and dedupe keep, hour by hour; it stays flat. Writes a plot.

    python scripts/flat_state.py [--hours 24] [--every 60] [--plot state.svg] [--seed 1]

Every so many seconds of event time an epoch takes the events of that time: users come and go, each for about an hour,
rows lag behind by up to a minute, and one row in a hundred comes twice. After each epoch the rows kept by each step are
noted, and the bytes of its state files. A plain count by user beside them shows that the simulation can fail: nothing
bounds it, and it grows all day. Exits 1 where anything else is larger late in the day than early in it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

START = 1_767_225_600  # 2026-01-01, in seconds
USERS, STAY, LAG = 30, 3600, 60  # at a time; seconds; seconds
SCHEMA = "id bigint, user string, amount int, at timestamp"
GROWS = "users"
SLACK = 1.25
"""How much larger than in its second hour a step's state may be at any later time: what the lag and the cut do."""


def app() -> hr.App:
    """Return an app with a step of each kind whose state time bounds, and one whose state nothing bounds."""
    made = hr.App("flat_state", shards=1)
    rows = made.stream("t", SCHEMA, event_time="at", out_of_order=f"{LAG} seconds")
    by_user, five = rows.group_by("user"), hr.tumbling("5 minutes", grace="1 minute")
    steps = {
        "tumbling": by_user.window(five).agg(n="count(*)", kinds="count(distinct amount)"),
        "final": by_user.window(five, emit="final").agg(n="count(*)"),
        "hopping": by_user.window(hr.hopping("15 minutes", "5 minutes", grace="1 minute")).agg(total="sum(amount)"),
        "cumulating": by_user.window(hr.cumulating("15 minutes", "5 minutes", grace="1 minute")).agg(n="count(*)"),
        "calendar": by_user.window(hr.tumbling("1 hour", grace="1 minute", timezone="Europe/Paris")).agg(n="count(*)"),
        "top": by_user.window(five).top(3, "amount desc", "place"),
        "session": by_user.window(hr.session("5 minutes", grace="1 minute")).agg(
            n="count(*)", amounts="collect_list(amount)"
        ),
        GROWS: by_user.agg(n="count(*)"),
    }
    for name, step in steps.items():
        step.named(name).to_view(name)
    rows.dedupe("id", within="5 minutes").named("dedupe").to_topic("once")
    return made


def events(hours: float, seed: int, rate: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield events with the second at which each comes, in the order in which they do."""
    chance = Random(seed)  # noqa: S311 -- a simulation
    coming = []
    for number in range(int(hours * 3600 * rate)):
        second = int(number / rate)
        user = f"user {second * USERS // STAY + chance.randrange(USERS)}"
        row = {"id": number, "user": user, "amount": chance.randrange(100), "at": (START + second) * 1000}
        coming.append((second + chance.randrange(LAG), number, row))
        if chance.random() < 0.01:
            coming.append((second + chance.randrange(LAG), number, row))
    for second, _, row in sorted(coming, key=lambda each: each[:2]):
        yield second, row


def simulate(hours: float, every: int, seed: int, *, rate: float) -> dict[str, list[tuple[float, int, int]]]:
    """Run the day; return for each step the hour, the rows kept and the bytes of its files, after each epoch.

    `rate`: events a second.
    """
    series: dict[str, list[tuple[float, int, int]]] = {}
    with Driver(app()) as driver:
        waiting, until = [], every
        for second, row in events(hours, seed, rate):
            if second >= until:
                driver.send("t", *waiting)
                driver.step()
                _note(driver, until / 3600, series)
                waiting, until = [], until + every
            waiting.append(row)
    return series


def _note(driver: Driver, hour: float, series: dict[str, list[tuple[float, int, int]]]) -> None:
    for step in driver.status()["steps"]:
        kept = driver.state(step)
        series.setdefault(step, []).append((hour, kept["rows"], kept["bytes"]))


def grown(series: list[tuple[float, int, int]], at: int = 1) -> float:
    """Return how much more is kept at any time after the third hour than in the second and third; rows or bytes."""
    early = max(each[at] for each in series if 1 <= each[0] <= 3)
    return max(each[at] for each in series if each[0] > 3) / max(early, 1)


# ---- the plot ----

WIDE, HIGH, LEFT, TOP = 900, 420, 70, 40
COLOURS = ["#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#666666", "#1f78b4"]


def plot(series: dict[str, list[tuple[float, int, int]]]) -> str:
    """Return an SVG of the rows kept by each step over the hours."""
    hours = max(each[0] for points in series.values() for each in points)
    most = max(each[1] for points in series.values() for each in points)
    wide, high = WIDE - LEFT - 150, HIGH - TOP - 50

    def place(hour: float, rows: float) -> str:
        return f"{LEFT + hour / hours * wide:.1f},{TOP + high - rows / most * high:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" font-family="sans-serif">',
        f'<rect width="{WIDE}" height="{HIGH}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">Rows kept by each step over a day of events</text>',
        f'<polyline fill="none" stroke="black" points="{place(0, most)} {place(0, 0)} {place(hours, 0)}"/>',
        f'<text x="{LEFT + wide / 2}" y="{HIGH - 12}">hours</text>',
    ]
    for part in range(5):
        x, y = place(hours * part / 4, most * part / 4).split(",")
        parts.append(f'<text x="{x}" y="{TOP + high + 18}" text-anchor="middle">{hours * part / 4:g}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{y}" text-anchor="end">{most * part / 4:.0f}</text>')
    for number, (step, points) in enumerate(sorted(series.items())):
        colour, line = COLOURS[number % len(COLOURS)], " ".join(place(hour, rows) for hour, rows, _ in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>')
        parts.append(f'<text x="{LEFT + wide + 12}" y="{TOP + 16 + number * 18}" fill="{colour}">{step}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Run it, print what grew, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--every", type=int, default=60, help="seconds of event time an epoch")
    parser.add_argument("--rate", type=float, default=0.5, help="events a second")
    parser.add_argument("--plot", type=Path, default=Path("flat_state.svg"))
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    series = simulate(said.hours, said.every, said.seed, rate=said.rate)
    said.plot.write_text(plot(series), encoding="utf-8")
    failed = False
    for step, points in sorted(series.items()):
        rows, size = grown(points), grown(points, at=2)
        most = max(each[1] for each in points)
        flat = rows <= SLACK
        failed |= flat == (step == GROWS)
        verdict = "flat" if flat else "grows"
        print(f"{step:<12}{most:>8,} rows at most, later {rows:5.2f} x   files {size:5.2f} x   {verdict}")
    print(f"plot: {said.plot}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
