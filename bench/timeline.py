"""`timeline`: 10 000 tweets reach the timelines of their authors' followers: 100 k users, 2 M follows.

Expected: a fifteenth of the time in which Spark makes all timelines anew. An epoch makes the 200 000 entries that its
tweets cause, and looks at the follows of their authors alone; a recomputation makes the entries of all tweets, of
which there are half a million before the first epoch that is measured (five of each user). A hundred old tweets are
deleted in each epoch. The rival is given its input for nothing: Parquet of both tables, the columns that it needs.
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

USERS, FOLLOWS, TWEETS = 100_000, 2_000_000, 500_000
EPOCH, DELETED, WARM = 10_000, 100, 5
SEED = 5


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    world = World(setting)
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
            "timeline",
            what=f"{world.each:,} tweets to their followers, {world.users:,} users, {len(world.follower):,} follows: "
            "theirs over ours",
            rival=f"Spark joins all {len(world.standing):,} tweets with the follows anew, from Parquet",
            must=">= 15",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


class World:
    """Who follows whom, and whose tweets stand."""

    def __init__(self, setting: Setting) -> None:
        self.random = np.random.default_rng(SEED)
        self.users = setting.rows(USERS)
        self.each, self.deleted = setting.rows(EPOCH), setting.rows(DELETED)
        pairs = np.unique(self.random.integers(0, self.users**2, setting.rows(FOLLOWS)))
        self.follower, self.followee = pairs // self.users, pairs % self.users
        self.author = self.random.integers(0, self.users, setting.rows(TWEETS))
        self.gone = np.zeros(len(self.author), np.bool_)
        self.fans = np.bincount(self.followee, minlength=self.users)

    @property
    def standing(self) -> np.ndarray:  # type: ignore[type-arg]
        """The numbers of the tweets that there are now."""
        return np.flatnonzero(~self.gone)

    @property
    def answer(self) -> tuple[int, int]:
        """How many entries there are, by the followers of all tweets that stand, and the sum of their numbers."""
        standing = self.standing
        fans = self.fans[self.author[standing]]
        return int(fans.sum()), int((fans * standing).sum())

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
        self.author = np.concatenate([self.author, self.random.integers(0, self.users, self.each)])
        old = self.random.choice(self.standing, self.deleted, replace=False)
        self.gone = np.concatenate([self.gone, np.zeros(self.each, np.bool_)])
        self.gone[old] = True
        came = self.tweets(first, first + self.each)
        nothing = pa.nulls(len(old), pa.int64())
        went = pa.table({"id": old.astype(np.int64), "author": nothing, "length": nothing})
        marked = [
            t.append_column("_deleted", pa.repeat(pa.scalar(flag), len(t))) for t, flag in ((came, False), (went, True))
        ]
        return pa.concat_tables(marked)


class Side(Fed):
    """Our app on Spark, filled, and a sink that adds up the entries that come and go."""

    name = "timeline"

    def __init__(self, setting: Setting, world: World) -> None:
        super().__init__(setting, "timeline")
        self.world = world
        self.epochs: list[int] = []
        self.entries = self.sum = 0
        tweets = self.table("tweets", "id bigint, author bigint, length bigint", key="id", partitions=1)
        both = ("follower", "followee")
        follows = self.table("follows", "follower bigint, followee bigint", key=both, partitions=1)
        tweets.join(follows, on={"author": "followee"}).to(self)
        every = world.follows()
        self.fill("follows", len(every), lambda first, last: every.slice(first, last - first))
        self.fill("tweets", len(world.author), world.tweets)
        self.start()

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's entries."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").to_numpy().astype(np.int64)
        self.entries += int(weight.sum())
        self.sum += int((rows.column("id").to_numpy() * weight).sum())

    def epoch(self) -> float:
        """Let the app take in the next tweets and return the milliseconds by Spark's own account."""
        return self.took(self.feed(self, {"tweets": self.world.tweet()}))

    def check(self) -> None:
        """Hold the entries against those that there must be."""
        same("entries, and the sum of their tweets' numbers", (self.entries, self.sum), self.world.answer)


def _written(setting: Setting, world: World) -> Path:
    """Write both tables as Parquet, as many files as there are cores."""
    folder = setting.fresh("world")
    standing = world.standing
    tweets = pa.table({"id": standing, "author": world.author[standing]})
    for name, table in (("tweets", tweets), ("follows", world.follows())):
        write_parquet(folder / name, table, files=2)
    return folder


def _agree(world: World, frame: Any) -> None:
    """Compare the rival's answer."""
    same("Spark's entries", tuple(frame.selectExpr("count(*)", "sum(id)").first()), world.answer)


def _joined(setting: Setting, folder: Path) -> Any:
    read = setting.rival({}).read
    tweets, follows = (read.parquet(str(folder / name)) for name in ("tweets", "follows"))
    return tweets.join(follows, tweets.author == follows.followee)
