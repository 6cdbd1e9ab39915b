"""`timeline`: 10 000 tweets reach the timelines of their authors' followers: 100 k users, 2 M follows.

Expected: a fifteenth of the time in which Spark recomputes all timelines. An epoch computes the 200 000 entries of its
tweets, and reads only the follows of their authors; a recomputation computes the entries of half a million tweets,
five of each user, which were there before both sides ran until they are warm. A hundred old tweets are deleted in each
epoch. Writing the rival's input is not timed: Parquet of both tables, the columns that it needs.
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

USERS, FOLLOWS, TWEETS = 100_000, 2_000_000, 500_000
EPOCH, DELETED = 10_000, 100
SEED = 5


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    dataset = Dataset(setting)
    with OurApp(setting, dataset) as our_app:
        recomputation, tweets = partial(_joined, setting, _written(setting, dataset)), len(dataset.existing)
        _agree(dataset, recomputation())
        warm_in_turn(setting, our_app.epoch, recomputation)
        our_app.check()
        mine, theirs = in_turn(setting, our_app.epoch, recomputation)
        our_app.check()
    return [
        compare_times(
            "timeline",
            what=f"{dataset.new_tweets:,} tweets to their followers, {dataset.users:,} users, "
            f"{len(dataset.follower):,} follows: theirs over ours",
            rival=f"Spark joins all {tweets:,} tweets of the beginning with the follows again, from Parquet",
            must=">= 15",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


class Dataset:
    """Who follows whom, and which tweets exist."""

    def __init__(self, setting: Setting) -> None:
        self.random = np.random.default_rng(SEED)
        self.users = setting.rows(USERS)
        self.new_tweets, self.deleted = setting.rows(EPOCH), setting.rows(DELETED)
        pairs = np.unique(self.random.integers(0, self.users**2, setting.rows(FOLLOWS)))
        self.follower, self.followee = pairs // self.users, pairs % self.users
        self.author = self.random.integers(0, self.users, setting.rows(TWEETS))
        self.gone = np.zeros(len(self.author), np.bool_)
        self.fans = np.bincount(self.followee, minlength=self.users)

    @property
    def existing(self) -> np.ndarray:  # type: ignore[type-arg]
        """The numbers of the tweets that exist."""
        return np.flatnonzero(~self.gone)

    @property
    def answer(self) -> tuple[int, int]:
        """The number of entries (the followers of all tweets that exist), and the sum of their tweets' numbers."""
        existing = self.existing
        fans = self.fans[self.author[existing]]
        return int(fans.sum()), int((fans * existing).sum())

    def tweets(self, first: int, last: int) -> pa.Table:
        """Return some tweets as they are written."""
        numbers = np.arange(first, last, dtype=np.int64)
        return pa.table({"id": numbers, "author": self.author[first:last], "length": numbers % 280})

    def follows(self) -> pa.Table:
        """Return who follows whom."""
        return pa.table({"follower": self.follower, "followee": self.followee})

    def tweet(self) -> pa.Table:
        """Return the next epoch's tweets and deletions."""
        first = len(self.author)
        self.author = np.concatenate([self.author, self.random.integers(0, self.users, self.new_tweets)])
        old = self.random.choice(self.existing, self.deleted, replace=False)
        self.gone = np.concatenate([self.gone, np.zeros(self.new_tweets, np.bool_)])
        self.gone[old] = True
        written = self.tweets(first, first + self.new_tweets)
        nothing = pa.nulls(len(old), pa.int64())
        deletions = pa.table({"id": old.astype(np.int64), "author": nothing, "length": nothing})
        records = [
            t.append_column("_deleted", pa.repeat(pa.scalar(flag), len(t)))
            for t, flag in ((written, False), (deletions, True))
        ]
        return pa.concat_tables(records)


class OurApp(FedApp):
    """Our app on Spark with its tables filled, and a sink that adds up inserted and withdrawn entries."""

    name = "timeline"

    def __init__(self, setting: Setting, dataset: Dataset) -> None:
        super().__init__(setting, "timeline")
        self.dataset = dataset
        self.epochs: list[int] = []
        self.entries = self.sum = 0
        tweets = self.table("tweets", "id bigint, author bigint, length bigint", key="id", partitions=1)
        pair = ("follower", "followee")
        follows = self.table("follows", "follower bigint, followee bigint", key=pair, partitions=1)
        tweets.join(follows, on={"author": "followee"}).to(self)
        all_follows = dataset.follows()
        self.fill("follows", len(all_follows), lambda first, last: all_follows.slice(first, last - first))
        self.fill("tweets", len(dataset.author), dataset.tweets)
        self.start()

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the entries of an epoch."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").to_numpy().astype(np.int64)
        self.entries += int(weight.sum())
        self.sum += int((rows.column("id").to_numpy() * weight).sum())

    def epoch(self) -> float:
        """Feed the next tweets; return the milliseconds that Spark reports."""
        return self.took(self.feed(self, {"tweets": self.dataset.tweet()}))

    def check(self) -> None:
        """Check the entries against the expected ones."""
        same("entries, and the sum of their tweets' numbers", (self.entries, self.sum), self.dataset.answer)


def _written(setting: Setting, dataset: Dataset) -> Path:
    """Write both tables as Parquet, as many files as there are cores."""
    folder = setting.fresh("world")
    existing = dataset.existing
    tweets = pa.table({"id": existing, "author": dataset.author[existing]})
    for name, table in (("tweets", tweets), ("follows", dataset.follows())):
        write_parquet(folder / name, table, files=2)
    return folder


def _agree(dataset: Dataset, frame: Any) -> None:
    """Compare the rival's answer."""
    same("Spark's entries", tuple(frame.selectExpr("count(*)", "sum(id)").first()), dataset.answer)


def _joined(setting: Setting, folder: Path) -> Any:
    read = setting.rival({}).read
    tweets, follows = (read.parquet(str(folder / name)) for name in ("tweets", "follows"))
    return tweets.join(follows, tweets.author == follows.followee)
