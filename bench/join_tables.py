"""`join_tables`: orders with their buyers, 1 M x 1 M, by a foreign key; a hundredth of each side changes an epoch.

Expected: an eighth of the time in which Spark joins both anew. An epoch looks up the 10 000 orders and 10 000 buyers
that change, and those that they meet: some 20 000 pairs go, and as many come; a recomputation reads and joins all. One
order in ten that changes gets another buyer. The rival is given its input for nothing: Parquet of both tables.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.anew import in_turn, warm, write_parquet
from bench.fed import Fed
from bench.figure import Figure, beside, same

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

ROWS, CHURN, MOVED, WARM = 1_000_000, 0.01, 0.1, 5
VALUES, SEED = 1_000_000, 7
SCHEMAS = {"orders": "id bigint, buyer bigint, amount bigint", "buyers": "buyer_id bigint, city bigint"}
KEYS = {"orders": "id", "buyers": "buyer_id"}


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    world = World(setting.rows(ROWS))
    with Side(setting, world) as side:
        for _ in range(WARM):
            side.epoch()
        side.check()
        anew = partial(_joined, setting, _written(setting, world))
        _agree(world, anew())
        warm(setting, anew)
        mine, theirs = in_turn(setting, side.epoch, anew)
        side.check()
    return [
        beside(
            "join_tables",
            what=f"{world.churn:,} changes of each side of {world.rows:,} x {world.rows:,} rows: theirs over ours",
            rival="Spark joins both tables anew, from Parquet",
            must=">= 8",
            ours=mine,
            theirs=theirs,
            unit="ms",
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

    def part(self, name: str, first: int, last: int) -> pa.Table:
        """Return the rows of a table from one number up to another."""
        return self.tables(name, np.arange(first, last))

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


class Side(Fed):
    """Our app on Spark, filled, and a sink that adds up the pairs that come and go."""

    name = "pairs"

    def __init__(self, setting: Setting, world: World) -> None:
        super().__init__(setting, "join")
        self.world = world
        self.epochs: list[int] = []
        self.pairs = self.sum = 0
        tables = [self.table(name, SCHEMAS[name], key=KEYS[name], partitions=1) for name in SCHEMAS]
        tables[0].join(tables[1], on={"buyer": "buyer_id"}).to(self)
        for name in SCHEMAS:
            self.fill(name, world.rows, partial(world.part, name))
        self.start()

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's pairs."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").to_numpy().astype(np.int64)
        self.pairs += int(weight.sum())
        amount, city = (rows.column(name).to_numpy() for name in ("amount", "city"))
        self.sum += int((weight * amount * (city % 7)).sum())

    def epoch(self) -> float:
        """Let the app take in the next changes of both sides and return the milliseconds by Spark's own account.

        They may come in two epochs: then it took both.
        """
        return self.took(self.feed(self, self.world.change()))

    def check(self) -> None:
        """Hold the pairs against the tables."""
        same("pairs and their sum", (self.pairs, self.sum), self.world.answer)


def _written(setting: Setting, world: World) -> Path:
    """Write both tables as Parquet, as many files as there are cores."""
    folder = setting.fresh("state")
    for name in SCHEMAS:
        write_parquet(folder / name, world.part(name, 0, world.rows), files=2)
    return folder


def _agree(world: World, frame: Any) -> None:
    """Compare the rival's answer."""
    answer = frame.selectExpr("count(*)", "sum(amount * (city % 7))").first()
    same("Spark's pairs and their sum", tuple(answer), world.answer)


def _joined(setting: Setting, folder: Path) -> Any:
    read = setting.rival({}).read
    orders, buyers = (read.parquet(str(folder / name)) for name in SCHEMAS)
    return orders.join(buyers, orders.buyer == buyers.buyer_id)
