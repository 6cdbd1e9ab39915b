"""Random queries against DuckDB's batch answers: `python scripts/random_sql.py --count 100 --seed 1`.

Each seed is one app with some views of random queries over tables that change; after every epoch each view is compared
with the batch query over the rows of that moment. A difference prints the seed, the epoch and the query. `--only TEXT`
plays one query with the rows of a seed. Ends with 1 if anything differs.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from headrace.kernels.state import keyed

keyed.FEWER = 0  # tables of a few rows would be given whole: so every row is looked up by its hash
TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS / "sql"))


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

    refused: Counter[str] = Counter()
    kept = answers = wrong = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        began = time.perf_counter()
        texts = [asked.only] if asked.only else drawn(seed, asked.queries)
        played = play(seed, texts, epochs=asked.epochs)
        kept, answers, refused = kept + played.kept, answers + played.answers, refused + played.refused
        wrong += len(played.wrong)
        print("\n".join(played.wrong), end="\n" * bool(played.wrong), flush=True)
        print(f"seed {seed}: {played.kept} queries, {time.perf_counter() - began:.1f} s", file=sys.stderr)
    for why, times in refused.most_common(20):
        print(f"{times:6} {why}", file=sys.stderr)
    print(f"{kept:,} queries kept, {refused.total():,} refused, {answers:,} answers with rows, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
