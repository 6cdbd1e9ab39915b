"""The same overload on a producer with each choice of `on_full`: what is sent, stored and dropped. Writes a plot.

    python scripts/full_buffers.py [--seconds 6] [--rate 2000] [--plot full_buffers.svg]

A device makes so many records a second, and three times as many in the second third of the time. The disk, which is
slowed down to 1.3 times the calm rate, cannot take that. Exits 1 where a record is neither stored nor counted as
dropped, where a choice that loses nothing lost something, or where the overload filled no buffer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from headrace.base.buffer import ON_FULL
from headrace.log import Log
from headrace.log.appending import writer

LIMIT = 500
BURST, ROOM = 3.0, 1.3  # times the calm rate: what comes in the overload, and what the disk takes
SAMPLE = 0.02  # seconds
EXPLAINED = {
    "block": "the device has to wait, and is late",
    "drop_oldest": "what is stored is new",
    "drop_newest": "what is stored was first",
    "spill": "all is stored, later",
}


@dataclass
class Course:
    """What happened with one choice: at each moment how many records were made so far, sent, stored, dropped."""

    on_full: str
    moments: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    spilled: int = 0
    waited: int = 0


def planned(second: float, seconds: float, rate: float) -> int:
    """Return how many records the device has made by then."""
    calm, burst = seconds / 3, max(0.0, min(second, 2 * seconds / 3) - seconds / 3)
    return int(rate * (min(second, calm) + BURST * burst + max(0.0, min(second, seconds) - 2 * seconds / 3)))


def run(on_full: str, seconds: float, rate: float) -> Course:
    """Let a device send to a producer on a slow disk, and note what happens."""
    course, sent, ended = Course(on_full), [0], threading.Event()
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder, Log(Path(folder)) as log:
        topic = log.create_topic("readings", "n bigint")
        with log.producer(max_unacknowledged=LIMIT, linger="5 ms", on_full=on_full) as producer:
            began = time.perf_counter()

            def device() -> None:
                while (second := time.perf_counter() - began) < seconds:
                    while sent[0] < planned(second, seconds, rate):
                        producer.send("readings", {"n": sent[0]})
                        sent[0] += 1
                    time.sleep(0.001)
                producer.flush()
                ended.set()

            thread = threading.Thread(target=device)
            thread.start()
            while not ended.wait(SAMPLE) or not course.moments:
                now = time.perf_counter() - began
                stored = topic.end_offsets()[0]
                course.moments.append((now, planned(now, seconds, rate), sent[0], stored, producer.dropped))
            thread.join()
        made, stored = planned(seconds, seconds, rate), topic.end_offsets()[0]
        last = course.moments[-1][0] + SAMPLE
        course.moments.append((last, made, sent[0], stored, producer.dropped))
        course.spilled, course.waited = producer.spilled, producer.waited
    return course


def slow_disk(rate: float) -> None:
    """Let each write of the log take as long as its records would on a disk of this rate."""
    written = writer._write
    free = [0.0]

    def write(fd: int, buffers: list[bytes], position: int) -> None:
        rows = sum(len(each) for each in buffers) / BYTES
        free[0] = max(free[0], time.perf_counter()) + rows / rate
        time.sleep(max(0.0, free[0] - time.perf_counter()))
        written(fd, buffers, position)

    writer._write = write


BYTES = 8.6  # of a record in a batch of hundreds, its share of the header included


# ---- the plot ----

WIDE, HIGH, LEFT, TOP = 460, 250, 60, 34
LINES = (
    ("made by the device", "#999999", 1),
    ("sent", "#7570b3", 2),
    ("stored", "#1b9e77", 3),
    ("dropped", "#d95f02", 4),
)


def panel(course: Course, x: int, y: int, *, last: float, most: int) -> list[str]:
    """Return the drawing of one choice, at a place."""
    wide, high = WIDE - LEFT - 20, HIGH - TOP - 34

    def place(second: float, count: float) -> str:
        return f"{x + LEFT + second / last * wide:.1f},{y + TOP + high - count / most * high:.1f}"

    title = f'on_full="{course.on_full}": {EXPLAINED[course.on_full]}'
    parts = [
        f'<text x="{x + LEFT}" y="{y + 20}" font-size="14">{title.replace(chr(34), "&quot;")}</text>',
        f'<polyline fill="none" stroke="black" points="{place(0, most)} {place(0, 0)} {place(last, 0)}"/>',
    ]
    for part in range(5):
        across, down = place(last * part / 4, most * part / 4).split(",")
        parts.append(
            f'<text x="{across}" y="{y + TOP + high + 16}" text-anchor="middle">{last * part / 4:.1f} s</text>'
        )
        parts.append(
            f'<text x="{x + LEFT - 6}" y="{float(down) + 4:.1f}" text-anchor="end">{most * part / 4:.0f}</text>'
        )
    for _, colour, at in LINES:
        points = " ".join(place(moment[0], moment[at]) for moment in course.moments)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{points}"/>')
    return parts


def plot(courses: list[Course]) -> str:
    """Return an SVG with a panel for each choice, all of the same scale."""
    last = max(course.moments[-1][0] for course in courses)
    most = max(moment[1] for course in courses for moment in course.moments)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDE}" height="{2 * HIGH + 30}" font-size="11">',
        "<style>text {font-family: sans-serif}</style>",
        f'<rect width="{2 * WIDE}" height="{2 * HIGH + 30}" fill="white"/>',
    ]
    for number, course in enumerate(courses):
        parts += panel(course, number % 2 * WIDE, number // 2 * HIGH, last=last, most=most)
    for number, (name, colour, _) in enumerate(LINES):
        parts.append(
            f'<text x="{LEFT + number * 170}" y="{2 * HIGH + 18}" fill="{colour}" font-size="13">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def wrong(course: Course) -> str | None:
    """Return what is not as it should be, None if all is."""
    _, made, sent, stored, dropped = course.moments[-1]
    if stored + dropped != sent:
        return f"{sent} were sent, {stored} are stored and {dropped} dropped"
    if course.on_full in ("block", "spill") and (dropped or stored != sent):
        return "a choice that drops nothing lost records"
    if course.on_full != "block" and sent < 0.99 * made:
        return f"the device was held up: {made} were to be sent, {sent} were"
    if not (dropped or course.spilled or course.waited):
        return "the buffer was never full: no overload"
    return None


def main() -> int:
    """Run each choice, print what happened, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rate", type=float, default=2000, help="records a second when it is calm")
    parser.add_argument("--plot", type=Path, default=Path("full_buffers.svg"))
    said = parser.parse_args()
    slow_disk(said.rate * ROOM)
    failed, courses = False, []
    for on_full in ON_FULL:
        course = run(on_full, said.seconds, said.rate)
        courses.append(course)
        _, made, sent, stored, dropped = course.moments[-1]
        failed |= (why := wrong(course)) is not None
        print(
            f"{on_full:<12} made {made:>7,}  sent {sent:>7,}  stored {stored:>7,}  dropped {dropped:>6,}  "
            f"spilled {course.spilled:>6,}  waited {course.waited:>5,}  done after {course.moments[-1][0]:.1f} s"
            f"{'  WRONG: ' + why if why else ''}"
        )
    said.plot.write_text(plot(courses), encoding="utf-8")
    print(f"plot: {said.plot}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
