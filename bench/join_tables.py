"""`join_tables`: orders with their buyers, 1 M x 1 M, by a foreign key; a hundredth of each side changes an epoch.

Expected: an eighth of the time in which Spark joins both anew. An epoch looks up the 10 000 orders and 10 000 buyers
that change, and those that they meet: some 20 000 pairs go, and as many come; a recomputation reads and joins all. One
order in ten that changes gets another buyer. The rival is given its input for nothing: Parquet of both tables.
"""

from __future__ import annotations

import shutil
import statistics
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from bench import ours
from bench.figure import Figure, paired, same
from bench.progress import epochs_ms, processing

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from bench.setting import Setting

ROWS, CHURN, MOVED, WARM = 1_000_000, 0.01, 0.1, 5
VALUES, SEED = 1_000_000, 7
SCHEMAS = {"orders": "id bigint, buyer bigint, amount bigint", "buyers": "buyer_id bigint, city bigint"}
KEYS = {"orders": "id", "buyers": "buyer_id"}
_CHUNK = 500_000


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    world = World(setting.rows(ROWS))
    with Side(setting, world) as side:
        for _ in range(WARM):
            side.epoch(world.change())
        side.check()
        folder = _written(setting, world)
        _warm(setting, world, folder)
        mine, theirs = [], []
        for number in range(setting.runs(15, 5)):
            mine.append(side.epoch(world.change()))
            theirs.append(_recompute(setting, folder))
            setting.say(f"run {number + 1}: an epoch {mine[-1]:.0f} ms, a recomputation {theirs[-1]:.0f} ms")
        side.check()
    ratio, spread = paired(theirs, mine)
    return [
        Figure(
            bench="join_tables",
            what=f"{world.churn:,} changes of each side of {world.rows:,} x {world.rows:,} rows: theirs over ours",
            rival="Spark joins both tables anew, from Parquet",
            ratio=ratio,
            spread=spread,
            must=">= 8",
            ours=statistics.median(mine),
            theirs=statistics.median(theirs),
            unit="ms",
            runs=len(mine),
        )
    ]


class World:
    """Orders and buyers as they are now."""

    def __init__(self, rows: int) -> None:
        self.random = np.random.default_rng(SEED)
        self.rows, self.churn = rows, max(1, round(rows * CHURN))
        self.buyer = self.random.integers(0, rows, rows)
        self.amount = self.random.integers(0, VALUES, rows)
        self.city = self.random.integers(0, VALUES, rows)

    def tables(self, name: str, ids: np.ndarray) -> pa.Table:  # type: ignore[type-arg]
        """Return some rows of a table."""
        if name == "orders":
            return pa.table({"id": ids, "buyer": self.buyer[ids], "amount": self.amount[ids]})
        return pa.table({"buyer_id": ids, "city": self.city[ids]})

    def change(self) -> dict[str, pa.Table]:
        """Change rows of both tables and return them."""
        orders, buyers = (self.random.choice(self.rows, self.churn, replace=False) for _ in range(2))
        self.amount[orders] = self.random.integers(0, VALUES, self.churn)
        moved = orders[: round(self.churn * MOVED)]
        self.buyer[moved] = self.random.integers(0, self.rows, len(moved))
        self.city[buyers] = self.random.integers(0, VALUES, self.churn)
        return {"orders": self.tables("orders", orders), "buyers": self.tables("buyers", buyers)}

    @property
    def answer(self) -> tuple[int, int]:
        """Rows of the join, and a sum over columns of both sides."""
        return self.rows, int((self.amount * (self.city[self.buyer] % 7)).sum())


class Side:
    """Our app on Spark, filled, and a sink that adds up the pairs that come and go."""

    name = "pairs"

    def __init__(self, setting: Setting, world: World) -> None:
        self.world = world
        self.epochs: list[int] = []
        self.pairs = self.sum = 0
        self.storage = setting.fresh("join")
        self.app = hr.App("join", storage=self.storage, shards=2)
        tables = [self.app.table(name, SCHEMAS[name], key=KEYS[name], partitions=1) for name in SCHEMAS]
        tables[0].join(tables[1], on={"buyer": "buyer_id"}).to(self)
        self.log = hr.Log(self.storage / "log")
        for name, schema in SCHEMAS.items():
            topic = self.log.create_topic(name, schema, key=KEYS[name], cleanup="compact")
            for first in range(0, world.rows, _CHUNK):
                topic.append(world.tables(name, np.arange(first, min(first + _CHUNK, world.rows))))
        self.running = self.app.start(setting.spark)
        self.running.await_caught_up(timeout=3_600)
        seconds, epochs = processing(ours.progress(self.running))
        setting.say(f"ours: {self.pairs:,} pairs made in {seconds:.1f} s, {epochs} epochs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.stop()
        self.log.close()
        shutil.rmtree(self.storage, ignore_errors=True)

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's pairs."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").to_numpy().astype(np.int64)
        self.pairs += int(weight.sum())
        amount, city = (rows.column(name).to_numpy() for name in ("amount", "city"))
        self.sum += int((weight * amount * (city % 7)).sum())

    def epoch(self, change: dict[str, pa.Table]) -> float:
        """Let the app take in changes of both sides and return the milliseconds by Spark's own account.

        Two topics are appended to one after the other, so they may come in two epochs: then it took both.
        """
        known = set(self.epochs)
        for name, rows in change.items():
            self.log.topic(name).append(rows)
        self.running.await_caught_up(timeout=600)
        made, until = set(self.epochs) - known, time.monotonic() + 60
        while len(took := [batch for batch in ours.progress(self.running) if batch["batchId"] in made]) < len(made):
            if time.monotonic() > until:
                raise TimeoutError("the epoch does not end")
            time.sleep(0.01)
        return sum(epochs_ms(took))

    def check(self) -> None:
        """Hold the pairs against the tables."""
        same("pairs and their sum", (self.pairs, self.sum), self.world.answer)


def _written(setting: Setting, world: World) -> Path:
    """Write both tables as Parquet, as many files as there are cores."""
    folder = setting.fresh("state")
    for name in SCHEMAS:
        (folder / name).mkdir(parents=True)
        for number, ids in enumerate(np.array_split(np.arange(world.rows), 2)):
            pq.write_table(world.tables(name, ids), folder / name / f"{number}.parquet")
    return folder


def _warm(setting: Setting, world: World, folder: Path) -> None:
    """Compare the rival's answer, and run it until it is warm."""
    answer = _joined(setting, folder).selectExpr("count(*)", "sum(amount * (city % 7))").first()
    same("Spark's pairs and their sum", tuple(answer), world.answer)
    for _ in range(4):
        took = _recompute(setting, folder)
    setting.say(f"theirs, warm: {took:.0f} ms")


def _recompute(setting: Setting, folder: Path) -> float:
    began = time.perf_counter()
    _joined(setting, folder).write.format("noop").mode("overwrite").save()
    return (time.perf_counter() - began) * 1000


def _joined(setting: Setting, folder: Path) -> Any:
    read = setting.rival({}).read
    orders, buyers = (read.parquet(str(folder / name)) for name in SCHEMAS)
    return orders.join(buyers, orders.buyer == buyers.buyer_id)
