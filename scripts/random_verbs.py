"""Random programs of verbs against plain Python: `python scripts/random_verbs.py --count 100 --seed 1`.

Each seed is one app with some views of random programs over tables that change; after every epoch each view is compared
with what plain Python makes of the rows of that moment. A difference prints the seed, the epoch and the program. Ends
with 1 if anything differs.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from headrace.kernels.state import keyed

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS / "law"))


def main() -> int:
    """Play as many apps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="how many apps")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--programs", type=int, default=6, help="how many views an app has")
    parser.add_argument("--epochs", type=int, default=4, help="how many epochs each app runs")
    parser.add_argument("--most", type=int, default=6, help="how many rows of a table an epoch changes at most")
    parser.add_argument("--shards", type=int, default=2, help="how many shards each app has")
    parser.add_argument("--whole", action="store_true", help="read small tables whole, as apps do")
    asked = parser.parse_args()
    from random_verbs import play

    if not asked.whole:
        keyed.FEWER = 0  # so every row is looked up by its hash
    refused: Counter[str] = Counter()
    kept = answers = wrong = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        began = time.perf_counter()
        played = play(seed, programs=asked.programs, epochs=asked.epochs, most=asked.most, shards=asked.shards)
        kept, answers, refused = kept + played.kept, answers + played.answers, refused + played.refused
        wrong += len(played.wrong)
        print("\n".join(played.wrong), end="\n" * bool(played.wrong), flush=True)
        print(f"seed {seed}: {played.kept} views, {time.perf_counter() - began:.1f} s", file=sys.stderr)
    for why, times in refused.most_common(20):
        print(f"{times:6} {why}", file=sys.stderr)
    print(f"{kept:,} views kept, {refused.total():,} refused, {answers:,} answers with rows, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
