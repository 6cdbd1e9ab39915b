"""Random programs of verbs against plain Python: `python scripts/random_verbs.py --count 100 --seed 1`.

Each seed is one app with some views of random programs over tables that change; after every epoch each view is compared
with what plain Python makes of the rows of that moment. A difference prints the seed, the epoch and the program. Ends
with 1 if anything differs.
"""

import argparse
import sys
from pathlib import Path

from plays import play_many

from headrace.kernels.state import keyed

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "law"), str(TESTS)]


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

    from random_plays import Played

    if not asked.whole:
        keyed.FEWER = 0  # so every row is looked up by its hash

    def one(seed: int) -> Played:
        return play(seed, programs=asked.programs, epochs=asked.epochs, most=asked.most, shards=asked.shards)

    return play_many(one, range(asked.seed, asked.seed + asked.count))


if __name__ == "__main__":
    sys.exit(main())
