"""`join_tables`: orders with their buyers, 1 M x 1 M, by a foreign key; a hundredth of each side changes an epoch.

Expected: an eighth of the time in which Spark joins both again. An epoch looks up the 10 000 orders and 10 000 buyers
that change, and their matches: some 20 000 pairs are withdrawn and as many inserted; a recomputation reads and joins
all. One changed order in ten gets another buyer. Writing the rival's input, Parquet of both tables, is not timed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.fed_app import FedApp
from bench.figure import Figure, compare_times, same
from bench.recompute import in_turn, warm_in_turn, write_parquet

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

ROWS, CHURN, MOVED = 1_000_000, 0.01, 0.1
VALUES, SEED = 1_000_000, 7
SCHEMAS = {"orders": "id bigint, buyer bigint, amount bigint", "buyers": "buyer_id bigint, city bigint"}
KEYS = {"orders": "id", "buyers": "buyer_id"}


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    dataset = Dataset(setting.rows(ROWS))
    with OurApp(setting, dataset) as our_app:
        recomputation = partial(_joined, setting, _written(setting, dataset))
        _agree(dataset, recomputation())
        warm_in_turn(setting, our_app.epoch, recomputation)
        our_app.check()
        mine, theirs = in_turn(setting, our_app.epoch, recomputation)
        our_app.check()
    return [
        compare_times(
            "join_tables",
            what=f"{dataset.churn:,} changes a side of {dataset.rows:,} x {dataset.rows:,} rows: theirs over ours",
            rival="Spark joins both tables again, from Parquet",
            must=">= 8",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


class Dataset:
    """The current orders and buyers."""

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
        """Return the rows of a table with numbers from `first` up to `last`."""
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


class OurApp(FedApp):
    """Our app on Spark with its tables filled, and a sink that adds up inserted and withdrawn pairs."""

    name = "pairs"

    def __init__(self, setting: Setting, dataset: Dataset) -> None:
        super().__init__(setting, "join")
        self.dataset = dataset
        self.epochs: list[int] = []
        self.pairs = self.sum = 0
        tables = [self.table(name, SCHEMAS[name], key=KEYS[name], partitions=1) for name in SCHEMAS]
        tables[0].join(tables[1], on={"buyer": "buyer_id"}).to(self)
        for name in SCHEMAS:
            self.fill(name, dataset.rows, partial(dataset.part, name))
        self.start()

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the pairs of an epoch."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").to_numpy().astype(np.int64)
        self.pairs += int(weight.sum())
        amount, city = (rows.column(name).to_numpy() for name in ("amount", "city"))
        self.sum += int((weight * amount * (city % 7)).sum())

    def epoch(self) -> float:
        """Feed the next changes of both sides; return the milliseconds that Spark reports.

        The changes may arrive in two epochs: then both count.
        """
        return self.took(self.feed(self, self.dataset.change()))

    def check(self) -> None:
        """Check the pairs against the tables."""
        same("pairs and their sum", (self.pairs, self.sum), self.dataset.answer)


def _written(setting: Setting, dataset: Dataset) -> Path:
    """Write both tables as Parquet, as many files as there are cores."""
    folder = setting.fresh("state")
    for name in SCHEMAS:
        write_parquet(folder / name, dataset.part(name, 0, dataset.rows), files=2)
    return folder


def _agree(dataset: Dataset, frame: Any) -> None:
    """Compare the rival's answer."""
    answer = frame.selectExpr("count(*)", "sum(amount * (city % 7))").first()
    same("Spark's pairs and their sum", tuple(answer), dataset.answer)


def _joined(setting: Setting, folder: Path) -> Any:
    read = setting.rival({}).read
    orders, buyers = (read.parquet(str(folder / name)) for name in SCHEMAS)
    return orders.join(buyers, orders.buyer == buyers.buyer_id)
