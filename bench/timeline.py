"""`timeline`: 10 000 tweets reach the timelines of their authors' followers: 100 k users, 2 M follows.

Expected: a fifteenth of the time in which Spark makes all timelines anew. An epoch makes the 200 000 entries that its
tweets cause, and looks at the follows of their authors alone; a recomputation makes the entries of all tweets, of
which there are half a million before the first epoch that is measured (five of each user). A hundred old tweets are
deleted in each epoch. The rival is given its input for nothing: Parquet of both tables, the columns that it needs.
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

USERS, FOLLOWS, TWEETS = 100_000, 2_000_000, 500_000
EPOCH, DELETED, WARM = 10_000, 100, 5
SEED = 5
_CHUNK = 500_000


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    world = World(setting)
    with Side(setting, world) as side:
        for _ in range(WARM):
            side.epoch(world.tweet())
        side.check()
        folder = _written(setting, world)
        _warm(setting, world, folder)
        mine, theirs = [], []
        for number in range(setting.runs(15, 5)):
            mine.append(side.epoch(world.tweet()))
            theirs.append(_recompute(setting, folder))
            setting.say(f"run {number + 1}: an epoch {mine[-1]:.0f} ms, a recomputation {theirs[-1]:.0f} ms")
        side.check()
    ratio, spread = paired(theirs, mine)
    return [
        Figure(
            bench="timeline",
            what=f"{world.each:,} tweets to their followers, {world.users:,} users, {len(world.follower):,} follows: "
            "theirs over ours",
            rival=f"Spark joins all {world.standing:,} tweets with the follows anew, from Parquet",
            ratio=ratio,
            spread=spread,
            must=">= 15",
            ours=statistics.median(mine),
            theirs=statistics.median(theirs),
            unit="ms",
            runs=len(mine),
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
    def standing(self) -> int:
        """How many tweets there are now."""
        return int((~self.gone).sum())

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
        old = self.random.choice(np.flatnonzero(~self.gone), self.deleted, replace=False)
        self.gone = np.concatenate([self.gone, np.zeros(self.each, np.bool_)])
        self.gone[old] = True
        came = self.tweets(first, first + self.each)
        nothing = pa.nulls(len(old), pa.int64())
        went = pa.table({"id": old.astype(np.int64), "author": nothing, "length": nothing})
        marked = [
            t.append_column("_deleted", pa.repeat(pa.scalar(flag), len(t))) for t, flag in ((came, False), (went, True))
        ]
        return pa.concat_tables(marked)


class Side:
    """Our app on Spark, filled, and a sink that adds up the entries that come and go."""

    name = "timeline"

    def __init__(self, setting: Setting, world: World) -> None:
        self.world = world
        self.epochs: list[int] = []
        self.entries = self.sum = 0
        self.storage = setting.fresh("timeline")
        app = hr.App("timeline", storage=self.storage, shards=2)
        tweets = app.table("tweets", "id bigint, author bigint, length bigint", key="id", partitions=1)
        follows = app.table("follows", "follower bigint, followee bigint", key=("follower", "followee"), partitions=1)
        tweets.join(follows, on={"author": "followee"}).to(self)
        self.log = hr.Log(self.storage / "log")
        self.log.create_topic("tweets", "id bigint, author bigint, length bigint", key="id", cleanup="compact")
        both = ("follower", "followee")
        self.log.create_topic("follows", "follower bigint, followee bigint", key=both, cleanup="compact")
        table = world.follows()
        for first in range(0, len(table), _CHUNK):
            self.log.topic("follows").append(table.slice(first, _CHUNK))
        for first in range(0, len(world.author), _CHUNK):
            self.log.topic("tweets").append(world.tweets(first, min(first + _CHUNK, len(world.author))))
        self.running = app.start(setting.spark)
        self.running.await_caught_up(timeout=3_600)
        seconds, epochs = processing(ours.progress(self.running))
        setting.say(f"ours: {self.entries:,} entries made in {seconds:.1f} s, {epochs} epochs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.stop()
        self.log.close()
        shutil.rmtree(self.storage, ignore_errors=True)

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's entries."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").to_numpy().astype(np.int64)
        self.entries += int(weight.sum())
        self.sum += int((rows.column("id").to_numpy() * weight).sum())

    def epoch(self, change: pa.Table) -> float:
        """Let the app take in an epoch and return its milliseconds by Spark's own account."""
        known = set(self.epochs)
        self.log.topic("tweets").append(change)
        self.running.await_caught_up(timeout=600)
        (epoch,) = set(self.epochs) - known
        until = time.monotonic() + 60
        while not (took := [batch for batch in ours.progress(self.running) if batch["batchId"] == epoch]):
            if time.monotonic() > until:
                raise TimeoutError("the epoch does not end")
            time.sleep(0.01)
        return epochs_ms(took)[-1]

    def check(self) -> None:
        """Hold the entries against a count of the followers of all tweets that stand."""
        world = self.world
        standing = np.flatnonzero(~world.gone)
        fans = world.fans[world.author[standing]]
        same("entries", self.entries, int(fans.sum()))
        same("the sum of their tweets' numbers", self.sum, int((fans * standing).sum()))


def _written(setting: Setting, world: World) -> Path:
    """Write both tables as Parquet, as many files as there are cores."""
    folder = setting.fresh("world")
    standing = np.flatnonzero(~world.gone)
    tweets = pa.table({"id": standing, "author": world.author[standing]})
    for name, table in (("tweets", tweets), ("follows", world.follows())):
        (folder / name).mkdir(parents=True)
        part = -(-len(table) // 2)
        for number in range(2):
            pq.write_table(table.slice(number * part, part), folder / name / f"{number}.parquet")
    return folder


def _warm(setting: Setting, world: World, folder: Path) -> None:
    """Compare the rival's answer, and run it until it is warm."""
    standing = np.flatnonzero(~world.gone)
    count = _joined(setting, folder).selectExpr("count(*)", "sum(id)").first()
    fans = world.fans[world.author[standing]]
    same("Spark's entries", tuple(count), (int(fans.sum()), int((fans * standing).sum())))
    for _ in range(4):
        took = _recompute(setting, folder)
    setting.say(f"theirs, warm: {took:.0f} ms")


def _recompute(setting: Setting, folder: Path) -> float:
    began = time.perf_counter()
    _joined(setting, folder).write.format("noop").mode("overwrite").save()
    return (time.perf_counter() - began) * 1000


def _joined(setting: Setting, folder: Path) -> Any:
    read = setting.rival({}).read
    tweets, follows = (read.parquet(str(folder / name)) for name in ("tweets", "follows"))
    return tweets.join(follows, tweets.author == follows.followee)
