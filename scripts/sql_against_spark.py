"""Queries against batch Spark: `python scripts/sql_against_spark.py --epochs 20 --seed 1`.

One app keeps a view for each query of tests/sql (TPC-H's 22 and others, over tables and streams). After every epoch
of inserts, updates and deletes each view is compared with what batch Spark gives over the rows of that moment. A
difference prints the query, the seed and the epoch. Ends with 1 if anything differs.
"""

import argparse
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "sql"), str(TESTS)]


def main() -> int:
    """Compare after as many epochs as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="how many epochs")
    parser.add_argument("--seed", type=int, default=1, help="of the rows and their changes")
    parser.add_argument("--only", nargs="*", help="names of queries")
    asked = parser.parse_args()
    from sql_oracle import EVERY, Batch, World, differences
    from sql_queries import CHAINS, MORE

    from headrace.engine.spark.session import session

    known = {**EVERY, **CHAINS, **MORE}
    queries = {name: known[name] for name in asked.only or known}
    batch, world = Batch(session(master="local[2]")), World(asked.seed, queries)
    wrong = answers = 0
    for epoch in range(asked.epochs):
        began = time.perf_counter()
        world.step()
        ours = time.perf_counter() - began
        batch.load(world.tables())
        for name, text in queries.items():
            theirs = batch.rows(text)
            answers += bool(theirs)
            said = differences(name, world.driver.view(name), theirs)
            if said:
                wrong += 1
                print(f"seed {asked.seed}, epoch {epoch}: {said}", flush=True)
        whole = time.perf_counter() - began
        print(f"epoch {epoch}: {len(queries)} queries, {ours:.1f} s of {whole:.1f} s, {wrong} differ", file=sys.stderr)
    print(f"{asked.epochs * len(queries):,} comparisons, {answers:,} with rows, {wrong} differ")
    world.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
