"""Random programs that are changed between runs: `python scripts/random_upgrades.py --count 100 --seed 1`.

Each seed is one storage on which programs over tables start one after the other: steps are dropped, added, replaced,
renamed or swapped. A changed program is refused, or each of its views has after every epoch what plain Python makes of
all rows. A difference prints the seed, the changes and the program. Ends with 1 if anything differs.
"""

import argparse
import sys
from pathlib import Path

from plays import play_many

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "law"), str(TESTS)]


def main() -> int:
    """Play as many storages as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="how many storages")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--programs", type=int, default=4, help="how many views a program has at first")
    parser.add_argument("--starts", type=int, default=4, help="how many programs start on each storage")
    asked = parser.parse_args()
    from random_upgrades import play

    from random_plays import Played

    def one(seed: int) -> Played:
        return play(seed, programs=asked.programs, starts=asked.starts)

    return play_many(one, range(asked.seed, asked.seed + asked.count))


if __name__ == "__main__":
    sys.exit(main())
