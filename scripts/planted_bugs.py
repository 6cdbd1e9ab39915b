"""Plant bugs, one at a time, and count how many simulated cases it takes to notice each.

    python scripts/planted_bugs.py [--only NAME ...] [--seed N] [--most 400] [--json]

An instrument that finds nothing may be blind. Each bug here is one that a stream processor can have; it is patched into
this process only, never into the source. A bug counts as caught if a case fails with it and passes without it. The hunt
begins where the bug was caught before, or at `--seed`. Ends with 1 if one was not caught within `--most` cases.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from headrace.base import checked
from headrace.engine import engine, publish, redo, storage
from headrace.engine.recovery import opening
from headrace.kernels import exchange, files, keep, over_run, ranking, staging, suppress
from headrace.kernels import redo as redo_log
from headrace.kernels.groups import partial
from headrace.kernels.joins import stream_join
from headrace.kernels.state import scanned
from headrace.log.appending import writer
from headrace.log.segments import frame, payload
from headrace.testing.simulation import check, draw
from headrace.testing.simulation.shapes import DELAY, SECOND
from headrace.views import sqlite, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.testing.simulation import Case

LATE = 'grace="5 seconds"'
"""A program with a window whose rows may be late."""


@dataclass(frozen=True)
class Bug:
    """A bug: `plant` patches it in. Cases that cannot meet it are not played.

    `needs`: a case has one of these actions. `points`: it crashes at one of these. `code`: its program has this text.
    `shards`: it has several. `accidents`: cases are drawn with accidents, after which an error of ours is right. `aim`:
    bits are flipped in files of such a path only, in such a place. `seed`: that of a case that notices it.
    """

    name: str
    plant: Callable[[ExitStack], None]
    needs: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    code: str = ""
    shards: bool = False
    accidents: bool = False
    aim: tuple[str, str] | tuple[()] = ()
    seed: int = 0

    def __str__(self) -> str:
        return self.name

    def case(self, seed: int) -> Case:
        """Return the case of a seed."""
        case = draw(seed, accidents=self.accidents)
        aimed = (("flip", action[1], *self.aim) if action[0] == "flip" else action for action in case.actions)
        return replace(case, actions=tuple(aimed)) if self.aim else case

    def may_show(self, case: Case) -> bool:
        """Whether a case can meet it."""
        does = not self.needs or any(action[0] in self.needs for action in case.actions)
        dies = not self.points or any(action[0] == "crash" and action[1] in self.points for action in case.actions)
        return does and dies and self.code in case.program() and (case.shards > 1 or not self.shards)


def replaced(where: Any, name: str, make: Callable[[Any], Any]) -> Callable[[ExitStack], None]:
    """Return how to replace an attribute by what `make` makes of it."""

    def plant(stack: ExitStack) -> None:
        real = where.__dict__[name]
        stack.enter_context(patch.object(where, name, make(real)))

    return plant


def publish_before_commit(real: Any) -> Any:
    """Hand an epoch's rows out, then commit it."""

    def commit(self: Any, *arguments: Any, **options: Any) -> Any:
        write = self.storage.write_commit

        def first_publish(made: Any, *rest: Any) -> None:
            self.publisher.publish(made)
            write(made, *rest)

        with patch.object(self.storage, "write_commit", first_publish):
            return real(self, *arguments, **options)

    return commit


def believe_any_cache(real: Any) -> Any:
    """Use what a cache has, whatever state file it is at."""

    def restore(self: Any, folder: Any) -> None:
        if self.duck.stamp(self.step) is None:
            real(self, folder)

    return restore


def judge_by_own_rows(real: Any) -> Any:
    """Judge an epoch's rows by the watermark that they move."""

    def grouped(self: Any, duck: Any, rows: str, watermark: int | None, **options: Any) -> Any:
        if watermark is not None:
            newest = duck.rows(f"SELECT max(_time) FROM {rows}")[0][0]
            watermark = max(watermark, (newest or 0) - DELAY * SECOND)
        return real(self, duck, rows, watermark, **options)

    return grouped


def old_watermarks(real: Any) -> Any:
    """Work with the watermarks of the epoch before the last, so that rows are late an epoch too late."""

    def begin(self: Any, **options: Any) -> Any:
        planned = real(self, **options)
        return replace(planned, before=replace(planned.before, watermarks=planned.before.previous))

    return begin


def without_syncs(real: Any) -> Any:
    """Write files without syncing them."""
    return SimpleNamespace(**{**vars(real), "fsync": lambda _: None})


def stale_offsets(real: Any) -> Any:
    """Store offsets that are one behind."""

    def to_json(self: Any) -> str:
        kept = [dict(progress.offsets) for progress in self.sources.values()]
        for progress in self.sources.values():
            progress.offsets = {number: max(end - 1, 0) for number, end in progress.offsets.items()}
        try:
            return str(real(self))
        finally:
            for progress, offsets in zip(self.sources.values(), kept, strict=True):
                progress.offsets = offsets

    return to_json


def forgotten_watermarks(real: Any) -> Any:
    """Start again without the watermarks of the last commit."""

    def from_json(*arguments: Any) -> Any:
        commit = real.__func__(*arguments)
        commit.watermarks = dict.fromkeys(commit.watermarks)
        commit.previous = dict.fromkeys(commit.previous)
        return commit

    return staticmethod(from_json)


def append_again(real: Any) -> Any:
    """Forget which appends a producer has made, so that a repeated one is appended again."""
    del real
    return lambda _self, group, _state: list(group)


def other_shards(real: Any) -> Any:
    """Choose shards by another hash after each restart."""
    starts = [0]

    class Counted(engine.Engine):
        def __init__(self, *arguments: Any) -> None:
            starts[0] += 1
            super().__init__(*arguments)

    def hashed(columns: Any, length: int) -> Any:
        return real(columns, length) + np.uint64(starts[0])

    hashed.engine = Counted  # type: ignore[attr-defined]
    return hashed


def plant_other_shards(stack: ExitStack) -> None:
    """Choose shards by another hash after each restart."""
    hashed = other_shards(exchange.hash_columns)
    stack.enter_context(patch.object(exchange, "hash_columns", hashed))
    stack.enter_context(patch.object(opening, "Engine", hashed.engine))


def no_checksums(*modules: Any) -> Callable[[ExitStack], None]:
    """Return how to write 0 for each checksum, which then always matches."""

    def plant(stack: ExitStack) -> None:
        for module in modules:
            if hasattr(module, "crc32"):
                stack.enter_context(patch.object(module, "crc32", lambda *_: 0))
            else:
                stack.enter_context(patch.object(module, "zlib", SimpleNamespace(crc32=lambda *_: 0)))

    return plant


def passed_changes(real: Any) -> Any:
    """Let every changed program go on with the state that is there."""

    def changes(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        passed = {"refused", "rebuilt"}
        entries = tuple(replace(each, outcome="passes") if each.outcome in passed else each for each in found.entries)
        return replace(found, entries=entries, rebuilt_steps=frozenset(), rebuilt_sinks=frozenset())

    return changes


def forgotten_journal(real: Any) -> Any:
    """Go on after the newest commit, whatever the journal knows of later ones."""
    del real

    def recovered(kept: Any, _journal: Any) -> Any:
        newest = kept.last_epoch()
        return (None if newest is None else kept.read_commit(newest)), []

    return recovered


def without_end(real: Any) -> Any:
    """Replay a step as far as its records go, though the app had not come so far."""

    def replay_of(app: Any) -> Any:
        found = real(app)
        return None if found is None else replace(found, until={})

    return replay_of


def ignored(answer: Any) -> Callable[[Any], Any]:
    """Return how to make a function that does nothing."""
    return lambda _: lambda *_arguments, **_options: answer


BUGS = (
    Bug("publish before commit", replaced(engine.Engine, "commit", publish_before_commit), ("crash", "fault"), seed=77),
    Bug("cache stamp ignored", replaced(scanned.ScannedState, "restore", believe_any_cache), ("twice",), seed=2),
    Bug("watermark of the same epoch", replaced(partial.Partial, "grouped", judge_by_own_rows), code=LATE, seed=670),
    Bug("watermark of an older epoch", replaced(engine.Engine, "begin", old_watermarks), code=LATE, seed=18),
    Bug("watermarks not stored", replaced(storage.Commit, "from_json", forgotten_watermarks), ("restart", "crash"),
        code=LATE, seed=435),
    Bug("fsync of staged rows and state left out", replaced(files, "os", without_syncs), ("power",), seed=200),
    Bug("redo log not written", replaced(redo_log.RedoLog, "write", ignored(None)), ("power",), seed=165),
    Bug("redo log not read", replaced(redo, "contents", ignored({})), ("power",), seed=200),
    Bug("fsync of appends left out", replaced(writer, "_sync", ignored(None)), ("power",), seed=141),
    Bug("name of a new folder not synced", replaced(storage, "make_folder",
        lambda real: lambda folder, **_: real(folder, sync=False)), ("power",), seed=142),
    Bug("offsets one behind", replaced(storage.Commit, "to_json", stale_offsets), ("restart", "crash"), seed=8),
    Bug("repeated append not dropped", replaced(writer.Writer, "_not_yet_appended", append_again),
        points=("between_topics", "before_mark", "before_views", "after_sink"), code=".to_topic(", seed=232),
    Bug("withdrawn row stays in a view", replaced(table.ViewTable, "_delete", ignored(0)), seed=23),
    Bug("withdrawn row stays in a bag", replaced(table.ViewTable, "_withdraw", ignored(0)), seed=32),
    Bug("view applied twice", replaced(sqlite, "_applied", ignored(-1)), ("crash", "fault")),
    Bug("tombstone lost", replaced(staging, "_changelog",
        lambda real: lambda op, source: f"SELECT * FROM ({real(op, source)}) WHERE NOT _deleted"), seed=133),
    Bug("row that moves between shards deleted", replaced(publish, "one_change_a_key",
        lambda _: lambda tables, _key: tables), code=".to_topic(", shards=True, seed=1347),
    Bug("shards chosen by another hash after a restart", plant_other_shards, ("restart", "crash"), shards=True,
        seed=65),
    Bug("checksum of state and staged rows not checked", no_checksums(files), ("flip",), accidents=True, seed=670),
    Bug("checksum of commits and descriptions not checked", no_checksums(checked), ("flip",), accidents=True,
        aim=(r"epochs/\d+\.json", r'(?<="offsets": {)[^}]+'), seed=2),
    Bug("checksum of records not checked", no_checksums(frame, payload), ("flip",), accidents=True,
        aim=(r"log/.*\.segment", "(?s).+"), seed=104),
    Bug("changed program passed", replaced(engine, "changes", passed_changes), ("program",), accidents=True, seed=134),
    Bug("rows that leave stay", replaced(keep.Keep, "_first", ignored(None)), code=".as_table(keep=", seed=62),
    Bug("changes that wait never come out", replaced(suppress.Suppress, "_period_ended", ignored(answer=False)),
        code='emit="every', seed=6),
    Bug("equal rows share no position", replaced(ranking.Ranking, "shares", lambda _: property(lambda _: False)),
        code="ties=", seed=330),
    Bug("rows before a row forgotten", replaced(over_run.Run, "close", ignored(None)), code=".over(", seed=104),
    Bug("match of a row forgotten", replaced(stream_join.StreamJoinRun, "_remember", ignored(None)), code="within=(",
        seed=413),
    Bug("lost epochs not noticed", replaced(engine, "recovered", forgotten_journal), ("lose", "restore"),
        accidents=True, seed=74),
    Bug("replay goes further than the app", replaced(opening, "replay_of", without_end), ("reset",),
        accidents=True, seed=8960),
)  # fmt: skip


@dataclass(frozen=True)
class Catch:
    """A bug that was noticed: by which seed, after how many cases, and how; None: it was not."""

    bug: str
    seed: int | None
    schedules: int
    failure: str


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have a bug."""
    with ExitStack() as stack:
        bug.plant(stack)
        yield


def hunt(bug: Bug, first: int, most: int) -> Catch:
    """Play cases until one notices a bug, at most so many."""
    seed, played = first, 0
    while played < most:
        case = bug.case(seed)
        if bug.may_show(case):
            played += 1
            with planted(bug):
                failure = check(case)
            if failure is not None and check(case) is None:
                return Catch(bug.name, seed, played, failure.kind)
        seed += 1
    return Catch(bug.name, None, played, "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt the bugs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[bug.name for bug in BUGS])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    began, missed = time.monotonic(), 0
    chosen = [bug for bug in BUGS if asked.only is None or bug.name in asked.only]
    for bug in chosen:
        catch = hunt(bug, bug.seed if asked.seed is None else asked.seed, asked.most)
        missed += catch.seed is None
        if asked.json:
            print(json.dumps(vars(catch)), flush=True)
        else:
            how = f"seed {catch.seed}, {catch.failure}" if catch.seed is not None else "NOT CAUGHT"
            print(f"{bug.name}: {how}, {catch.schedules} schedules", flush=True)
    if not asked.json:
        caught = len(chosen) - missed
        print(f"{caught} of {len(chosen)} planted bugs caught, {time.monotonic() - began:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
