"""Run what is too long for `make test`, and write what ran and what it found into docs/PROOF.md.

    python scripts/prove.py [--seed 20260131] [--workers 2] [--only tests log_kills ...]

Long cases of the tests (`pytest --prove`), random tests with twenty times the examples, and the scripts that kill,
corrupt and compare, with counts that take minutes each. The seed is printed first and is that of every run; a failure
prints what replays it. Ends with 1 if anything failed. With `--only`, or from a dirty tree, the report is only printed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
REPORT = HOUSE / "docs" / "PROOF.md"
BEGIN, END = "<!-- last run: begin -->", "<!-- last run: end -->"

SCRIPTS: dict[str, list[str]] = {
    "flat_state": ["--hours", "6", "--plot", "/dev/null"],
    "fuzz_texts": ["--count", "15000"],
    "kafka_fire": ["--local"],
    "landing_power": ["--cuts", "600"],
    "log_flips": ["--flips", "3000"],
    "log_kills": ["--kills", "200"],
    "log_power": ["--cuts", "600"],
    "log_readers": ["--seconds", "30"],
    "planted_bugs": ["--most", "400"],
    "random_expressions": ["--count", "10000"],
    "random_joins": ["--count", "300"],
    "random_sql": ["--count", "100"],
    "random_upgrades": ["--count", "40"],
    "random_verbs": ["--count", "100"],
    "simulate": ["--count", "2000"],
    "simulate --accidents": ["--count", "2000"],
    "simulate --spark": ["--count", "100"],
    "spark_kills": ["--kills", "4"],
    "sql_against_spark": ["--epochs", "5"],
    "transfers": ["--reads", "2000"],
}
UNSEEDED = ("log_readers",)
FOUND = 80
"""So much of what a run said last is in the report."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `found` is the last line that it printed."""

    name: str
    arguments: str
    seconds: float
    code: int
    found: str


def commands(seed: int, workers: int) -> dict[str, list[str]]:
    """Return each run's command by its name."""
    tests = ["-m", "pytest", "--prove", f"--hypothesis-seed={seed}", f"--numprocesses={workers}", "--dist=loadgroup"]
    seeded = {
        name: [
            f"scripts/{name.split()[0]}.py",
            *name.split()[1:],
            *counts,
            *([] if name in UNSEEDED else ["--seed", str(seed)]),
        ]
        for name, counts in SCRIPTS.items()
    }
    return {"tests": tests, **seeded}


def run(name: str, command: list[str]) -> Outcome:
    """Run a command, pass on what it prints, and keep its last line."""
    print(f"==> prove: {name} ({' '.join(command)})", flush=True)
    began, last = time.monotonic(), ""
    with subprocess.Popen(
        [sys.executable, *command], cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if name != "tests" or " in " in line:  # what a library says while it closes is no finding
                last = line.strip() or last
    return Outcome(name, " ".join(command), time.monotonic() - began, process.returncode, last[:FOUND])


def report(outcomes: list[Outcome], commit: str, seed: int) -> str:
    """Return the report as Markdown."""
    day = dt.datetime.now(tz=dt.UTC).date()
    lines = [f"Commit `{commit}`, {day}, seed {seed}, Python {sys.version.split()[0]}.", ""]
    lines += ["| run | minutes | outcome | what it said last |", "|---|---|---|---|"]
    for each in outcomes:
        outcome = "passed" if each.code == 0 else f"FAILED ({each.code})"
        lines.append(f"| {each.name} | {each.seconds / 60:.1f} | {outcome} | {each.found.replace('|', '/')} |")
    lines += ["", "```", *(f"{each.name}: {each.arguments}" for each in outcomes), "```"]
    return "\n".join(lines)


def git(*arguments: str) -> str:
    """Return what git says, or nothing outside a repository."""
    done = subprocess.run(["git", *arguments], cwd=HOUSE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    """Run all, or what `--only` names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(dt.datetime.now(tz=dt.UTC).strftime("%Y%m%d")))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=["tests", *SCRIPTS])
    asked = parser.parse_args()
    commit, clean = git("rev-parse", "--short", "HEAD") or "unknown", not git("status", "--porcelain")
    print(f"==> prove: commit {commit}, seed {asked.seed}", flush=True)
    chosen = {
        name: command
        for name, command in commands(asked.seed, asked.workers).items()
        if asked.only is None or name in asked.only
    }
    outcomes = [run(name, command) for name, command in chosen.items()]
    text = report(outcomes, commit, asked.seed)
    print(text)
    if asked.only is None and clean:
        before, _, rest = REPORT.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        REPORT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return int(any(each.code for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
