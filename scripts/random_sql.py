"""Random queries against DuckDB's batch answers: `python scripts/random_sql.py --count 100 --seed 1`.

Each seed is one app with some views of random queries over tables that change; after every epoch each view is compared
with the batch query over the rows of that moment. A difference prints the seed, the epoch and the query. `--only TEXT`
plays one query with the rows of a seed. Ends with 1 if anything differs.
"""

import argparse
import sys
from pathlib import Path

from plays import play_many

from headrace.kernels.state import keyed

keyed.FEWER = 0  # tables of a few rows would be given whole: so every row is looked up by its hash
TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "sql"), str(TESTS)]


def main() -> int:
    """Play as many apps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="how many apps")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--queries", type=int, default=15, help="how many queries an app has")
    parser.add_argument("--epochs", type=int, default=4, help="how many epochs each app runs")
    parser.add_argument("--only", metavar="TEXT", help="one query instead of random ones")
    asked = parser.parse_args()
    from random_queries import drawn, play

    from random_plays import Played

    def one(seed: int) -> Played:
        return play(seed, [asked.only] if asked.only else drawn(seed, asked.queries), epochs=asked.epochs)

    return play_many(one, range(asked.seed, asked.seed + asked.count))


if __name__ == "__main__":
    sys.exit(main())
