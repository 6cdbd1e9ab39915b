"""Plays an app for each of many seeds, and gives account: for random_sql.py, random_verbs.py and random_upgrades.py."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from random_plays import Played


def play_many(play: Callable[[int], Played], seeds: Iterable[int]) -> int:
    """Play the app of each seed and print what was wrong; 1 if anything was."""
    refused: Counter[str] = Counter()
    kept = answers = wrong = 0
    for seed in seeds:
        began = time.perf_counter()
        played = play(seed)
        kept, answers, refused = kept + played.kept, answers + played.answers, refused + played.refused
        wrong += len(played.wrong)
        print("\n".join(played.wrong), end="\n" * bool(played.wrong), flush=True)
        print(f"seed {seed}: {played.kept} views, {time.perf_counter() - began:.1f} s", file=sys.stderr)
    for why, times in refused.most_common(20):
        print(f"{times:6} {why}", file=sys.stderr)
    print(f"{kept:,} views kept, {refused.total():,} refused, {answers:,} answers with rows, {wrong} wrong")
    return 1 if wrong else 0
