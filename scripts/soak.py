"""An app at a steady rate for an hour, restarted and killed: memory, state and files stay flat. Writes a plot.

    python scripts/soak.py [--minutes 60] [--rate 1000] [--restarts 10] [--kills 5] [--local] [--seed 1]

The app (windows, a table, dedupe, a join of tables; two topics and two views) runs as a program does, by
`headrace run`. This process appends events, looks at the app every second, stops it at an epoch's end or kills it and
all its processes at random moments, and starts it again. In the end every output is held against the events, and what
was measured in the last third of the time against the first. Exits 1 where something is lost, twice, or grown.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench.figure import percentile
from scripts.processes import processes_of, resident

import headrace as hr

USERS = 1_000
SCHEMA = "id bigint, user int, amount bigint, at timestamp"
START = 1_767_225_600_000_000  # 2026-01-01, in microseconds
PARTITIONS = 2
SLACK = 1.3
"""How much more there may be in the last third of the time than in the first."""
KEEP = "3 minutes"
UNBOUNDED = {"windows", "journals"}
"""The output topic grows for ever, and the journal up to 64 MB: neither is counted."""

PROGRAM = f"""
import headrace as hr

app = hr.App("soak", storage="{{storage}}", shards=2)
events = app.stream("events", "{SCHEMA}", key="id", event_time="at", out_of_order="2 s", partitions={PARTITIONS})
once = events.dedupe("id", within="1 minute").named("once")
windows = once.group_by("user").window(hr.tumbling("10 s", grace="2 s"), emit="final")
windows.agg(n="count(*)", total="sum(amount)").named("windows").to_topic("windows")
totals = once.group_by("user").agg(n="count(*)", total="sum(amount)").named("totals")
totals.to_view("totals")
best = totals.where("user < 100").named("best")
pairs = totals.join(best, on="user", suffix="_best").named("pairs")
pairs.group_by("user").agg(n="max(n_best)").named("sums").to_view("sums")
"""


@dataclass
class Sample:
    """What the app was at a moment: seconds since the start, MB of memory, MB of state, files, MB of all these."""

    at: float
    memory: float
    state: float
    files: float
    storage: float
    mark: str = ""


@dataclass
class Soak:
    """One run."""

    folder: Path
    rate: int
    local: bool
    samples: list[Sample] = field(default_factory=list)
    sent: int = 0
    app: subprocess.Popen | None = None

    def __post_init__(self) -> None:
        self.storage = self.folder / "app"
        self.program = self.folder / "program.py"
        self.program.write_text(PROGRAM.format(storage=self.storage))
        self.log = hr.Log(self.storage / "log", segment_bytes=4 << 20)
        self.events = self.log.create_topic(
            "events", SCHEMA, key="id", event_time="at", partitions=PARTITIONS, retention=KEEP
        )

    def start(self) -> None:
        """Start the app; it goes on where it stopped."""
        command = [str(Path(sys.executable).with_name("headrace")), "run", str(self.program)]
        with (self.folder / "output.log").open("ab") as output:
            self.app = subprocess.Popen(
                command + ["--local"] * self.local, stdout=output, stderr=output, start_new_session=True
            )

    def stop(self) -> None:
        """Stop the app at the end of an epoch."""
        assert self.app is not None
        self.app.send_signal(signal.SIGTERM)
        self.app.wait(120)

    def kill(self) -> None:
        """End the app and its processes by kill -9, if it runs."""
        assert self.app is not None
        if self.app.poll() is None:
            os.killpg(self.app.pid, signal.SIGKILL)
            self.app.wait()

    def send(self, rows: int) -> None:
        """Append events; one in a hundred comes twice."""
        ids = [*range(self.sent, self.sent + rows), *range(self.sent, self.sent + rows, 100)]
        columns = {
            "id": pa.array(ids, pa.int64()),
            "user": pa.array([i * 7919 % USERS for i in ids], pa.int32()),
            "amount": pa.array([i % 97 for i in ids], pa.int64()),
            "at": pa.array([START + i * 1_000_000 // self.rate for i in ids], pa.timestamp("us", tz="UTC")),
        }
        self.events.append(pa.table(columns))
        self.sent += rows

    def sample(self, at: float, mark: str = "") -> None:
        """Note what the app is now."""
        sizes, files, state = 0, 0, 0
        for inside, folders, names in os.walk(self.storage):  # what is removed meanwhile is left out
            folders[:] = [folder for folder in folders if folder not in UNBOUNDED]
            for name in names:
                try:
                    size = Path(inside, name).stat().st_size
                except OSError:
                    continue
                sizes, files = sizes + size, files + 1
                state += size if Path(inside).is_relative_to(self.storage / "state") else 0
        pids = processes_of(self.app.pid) if self.app is not None else []
        memory = sum(resident(pid) for pid in pids)
        self.samples.append(Sample(at, memory / 1e6, state / 1e6, files, sizes / 1e6, mark))

    def check(self) -> list[str]:
        """Return what is wrong with the outputs."""
        command = [str(Path(sys.executable).with_name("headrace")), "run", str(self.program), "--until-caught-up"]
        subprocess.run(command + ["--local"] * self.local, check=True, capture_output=True)
        counts = [0] * USERS
        totals = [0] * USERS
        for i in range(self.sent):
            counts[i * 7919 % USERS] += 1
            totals[i * 7919 % USERS] += i % 97
        views = hr.App("soak", storage=self.storage)
        shown = {row["user"]: (row["n"], row["total"]) for row in views.view("totals").to_pylist()}
        wrong = []
        if shown != {user: (counts[user], totals[user]) for user in range(USERS) if counts[user]}:
            wrong.append("the view of totals is not the sum of the events")
        topic = self.log.topic("windows")
        windows: dict[tuple, int] = {}
        for partition, end in topic.end_offsets().items():
            for row in topic.read(partition, topic.start_offsets()[partition], end + 1).to_pylist():
                key = (row["user"], row["window_start"])
                wrong += [f"the window {key} came twice"] if key in windows else []
                windows[key] = row["n"]
        seconds = 10
        per_window = self.rate * seconds
        closed = max((start.timestamp() for _, start in windows), default=0)
        expected = sum(1 for i in range(self.sent) if START / 1e6 + i // per_window * seconds <= closed)
        if sum(windows.values()) != expected:
            wrong.append(f"the windows count {sum(windows.values())} events of {expected}")
        return wrong


def run(soak: Soak, *, minutes: float, restarts: int, kills: int, chance: Random) -> None:
    """Feed, look, restart and kill for so long."""
    seconds = minutes * 60
    moments = sorted(chance.uniform(0.05, 0.95) * seconds for _ in range(restarts + kills))
    kinds = ["restart"] * restarts + ["kill"] * kills
    chance.shuffle(kinds)
    events = list(zip(moments, kinds, strict=True))
    began = time.monotonic()
    soak.start()
    while (now := time.monotonic() - began) < seconds:
        soak.send(max(0, int(now * soak.rate) - soak.sent))
        mark = ""
        if events and events[0][0] <= now:
            mark = events.pop(0)[1]
            soak.stop() if mark == "restart" else soak.kill()
            soak.start()
            print(f"{now / 60:5.1f} min: {mark}", flush=True)
        assert soak.app is not None
        if soak.app.poll() is not None:
            raise SystemExit(f"the app ended by itself: {(soak.folder / 'output.log').read_text()[-2000:]}")
        soak.sample(now, mark)
        time.sleep(max(0.0, 1 - (time.monotonic() - began - now)))
    soak.stop()


MEASURES = (("memory", "MB of memory"), ("state", "MB of state"), ("files", "files"), ("storage", "MB on the disk"))


def grown(samples: list[Sample]) -> dict[str, float]:
    """Return how much more there is in the last third than in the first (without its first fifth), by measure.

    What is cleaned up now and then rises and falls by the minute, and a median depends on where the restarts fell: so
    what nine of ten samples are not above is compared.
    """
    end = samples[-1].at
    first = [sample for sample in samples if end / 15 < sample.at <= end / 3]
    last = [sample for sample in samples if sample.at > end * 2 / 3]
    return {
        name: percentile([getattr(sample, name) for sample in last], 0.9)
        / max(1e-9, percentile([getattr(sample, name) for sample in first], 0.9))
        for name, _ in MEASURES
    }


def plot(samples: list[Sample]) -> str:
    """Return an SVG: a curve for each measure; restarts are grey lines, kills red ones."""
    wide, high, left = 760, 110, 70
    size = f'width="{left + wide + 20}" height="{len(MEASURES) * (high + 40) + 30}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    end = samples[-1].at
    for number, (name, title) in enumerate(MEASURES):
        top = 20 + number * (high + 40)
        most = max(getattr(sample, name) for sample in samples) or 1
        points = " ".join(
            f"{left + sample.at / end * wide:.1f},{top + high - getattr(sample, name) / most * high:.1f}"
            for sample in samples
        )
        parts.append(f'<text x="{left}" y="{top - 6}">{title}</text>')
        parts.append(f'<text x="{left - 6}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>')
        parts.append(f'<text x="{left - 6}" y="{top + high}" text-anchor="end">0</text>')
        for sample in samples:
            if sample.mark:
                x, colour = left + sample.at / end * wide, "#d62728" if sample.mark == "kill" else "#bbbbbb"
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + high}" stroke="{colour}"/>')
        parts.append(f'<polyline fill="none" stroke="#1f77b4" stroke-width="1.2" points="{points}"/>')
        parts.append(f'<line x1="{left}" x2="{left + wide}" y1="{top + high}" y2="{top + high}" stroke="black"/>')
    label = f"{end / 60:.0f} minutes; grey: restarts, red: kill -9"
    parts.append(f'<text x="{left}" y="{len(MEASURES) * (high + 40) + 18}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Run it, compare, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--local", action="store_true", help="in one process, without Spark")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, default=Path("soak.svg"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        soak = Soak(Path(folder), asked.rate, asked.local)
        chance = Random(asked.seed)  # noqa: S311 -- moments, not secrets
        try:
            run(soak, minutes=asked.minutes, restarts=asked.restarts, kills=asked.kills, chance=chance)
            wrong = soak.check()
        finally:
            soak.kill()
    asked.plot.write_text(plot(soak.samples), encoding="utf-8")
    for name, ratio in grown(soak.samples).items():
        print(f"{name:<10}{ratio:6.2f} x in the last third of what it was in the first")
        wrong += [f"{name} has grown"] if ratio > SLACK else []
    for what in wrong:
        print(f"WRONG: {what}")
    done = f"{asked.minutes:g} minutes, {soak.sent:,} events, {asked.restarts} restarts, {asked.kills} kills"
    print(f"{done}, seed {asked.seed}: {'failed' if wrong else 'all outputs right, all flat'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
