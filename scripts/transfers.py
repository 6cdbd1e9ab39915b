"""Money is neither made nor lost in any view, at any time: `python scripts/transfers.py --reads 10000 --seed 1`.

An app adds up what each account got and what it gave, apart, and writes both as changelogs to two topics; a second app
reads these as tables and joins them into balances, whose sum is a view too. While both run, another process reads the
balances: at every read they must sum to 0. Ends with 1 if a read was wrong.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import headrace as hr
from headrace.base.time import ManualClock
from headrace.engine.engine import Engine
from headrace.engine.epoch import Settings
from headrace.engine.inprocess import InProcess
from headrace.plan.plan import make_plan

ACCOUNTS = 10
TRANSFERS = "giver int, taker int, amount int"
SUMS = {"credited": ("taker", "got"), "debited": ("giver", "gave")}
READING = """
import sys
from scripts.transfers import balances
app, wrong, seen = balances(sys.argv[1]), 0, set()
for _ in range(int(sys.argv[2])):
    rows = app.view("balances").to_pylist()
    wrong += sum(row["balance"] for row in rows) != 0 or len({row["account"] for row in rows}) != len(rows)
    seen.add(tuple(row["balance"] for row in rows))
print(wrong, len(seen))
"""


def sums(storage: Path) -> hr.App:
    """Return the app that adds up, each sum for itself."""
    app = hr.App("sums", storage=storage)
    rows = app.stream("transfers", TRANSFERS, partitions=2)
    for topic, (account, column) in SUMS.items():
        rows.group_by(account=account).agg(**{column: "sum(amount)"}).named(topic).to_topic(topic)
    return app


def balances(storage: str | Path) -> hr.App:
    """Return the app that joins the sums into balances."""
    app = hr.App("balances", storage=storage)
    tables = [app.table(topic, f"account int, {column} bigint", key="account") for topic, (_, column) in SUMS.items()]
    joined = tables[0].join(tables[1], on="account", how="full")
    made = joined.with_columns(balance="coalesce(got, 0) - coalesce(gave, 0)")
    made.to_view("balances")
    made.group_by().agg(total="sum(balance)").to_view("total")
    return app


def carried(app: hr.App, storage: Path, log: Path) -> InProcess:
    """Return an app that runs, on topics of a log that apps share."""
    settings = Settings(storage=storage, topics=f"log:{log}", shards=2, clock=ManualClock(), sync=False, partitions=1)
    return InProcess(Engine(make_plan(app.name, app.plan().sinks), settings))


def prove(folder: Path, seed: int, reads: int) -> tuple[int, int]:
    """Run both apps until the other process has read so often; return how many were wrong, and how many differed."""
    draw = random.Random(seed)  # noqa: S311 -- no secret
    first = carried(sums(folder / "sums"), folder / "sums", folder / "log")
    second = carried(balances(folder / "balances"), folder / "balances", folder / "log")
    topic = first.engine.outside.log.topic("transfers")
    reader = None
    try:
        while reader is None or reader.poll() is None:
            pairs = [draw.sample(range(ACCOUNTS), 2) for _ in range(draw.randint(1, 20))]
            topic.append([{"giver": giver, "taker": taker, "amount": 1} for giver, taker in pairs])
            for _ in range(draw.randint(0, 2)):
                first.step(limit=draw.choice((3, 1000)))
            for _ in range(draw.randint(0, 2)):
                second.step(limit=draw.choice((2, 1000)))
                total = second.engine.views.read("total").to_pylist()
                assert total in ([], [{"total": 0}]), (seed, total)
            if reader is None and second.engine.views.read("balances").num_rows:
                asked = [sys.executable, "-c", READING, str(folder / "balances"), str(reads)]
                reader = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
        assert reader.returncode == 0
        wrong, seen = map(int, reader.communicate()[0].split())
        return wrong, seen
    finally:
        for running in (first, second):
            running.close()
            running.engine.close()


def main() -> int:
    """Read as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=10_000, help="how many reads")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong, seen = prove(Path(folder), asked.seed, asked.reads)
    print(f"{asked.reads:,} reads, {seen:,} different balances, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
