"""`sink_postgres`: a million upserts of a table into PostgreSQL, in one epoch; half of the keys are there already.

Ours reads the rows from Parquet and publishes them by `postgres.upsert`: COPY, one statement, the mark, one
transaction. The rival is Spark's JDBC writer (`append`, `batchsize` 10,000, `reWriteBatchedInserts`, two partitions)
into an unlogged staging table, then one `INSERT … ON CONFLICT DO UPDATE`: it has no mark, and is not exactly once.
Expected: twice its speed. The tables are compared after each run. Spark is a process of its own and stays warm; the
two sides take turns.

    python -m bench.sink_postgres JSON     the rival's process: a run for each line of its input
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scripts.broker.jars import Unavailable as NoJar
from scripts.broker.jars import fetched
from scripts.servers.packages import Unavailable

from bench import cdc_server
from bench.figure import Figure, Skipped, compare_times, same
from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg
    from scripts.servers.postgres import Postgres

    from bench.setting import Setting

ROWS = 1_000_000
DRIVER = "org.postgresql:postgresql:42.7.4"
_RIVAL = "Spark's JDBC writer into a staging table, and INSERT … ON CONFLICT"
_COLUMNS = "id bigint PRIMARY KEY, name text, amount numeric(12,2), changed timestamp with time zone"
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("changed", pa.timestamp("us", "UTC")),
    ]
)
_UPSERT = """
INSERT INTO shop SELECT * FROM staging
ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, amount = EXCLUDED.amount, changed = EXCLUDED.changed
"""


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    try:
        jars = sorted(fetched(DRIVER).glob("**/*.jar"))
        with cdc_server.server(setting) as at:
            return _measured(setting, at, [str(jar) for jar in jars])
    except (Unavailable, NoJar) as reason:
        return [Skipped(bench="sink_postgres", rival=_RIVAL, reason=str(reason))]


def _measured(setting: Setting, at: Postgres, jars: list[str]) -> list[Figure | Skipped]:
    rows = setting.rows(ROWS)
    file = setting.fresh("rows.parquet")
    pq.write_table(_rows(rows), file)
    ours: list[float] = []
    theirs: list[float] = []
    with cdc_server.connected(at) as sql, _rival(at, file, jars) as rival:
        for number in range(setting.runs(5, 3) + 1):
            _reset(sql, rows)
            mine = _ours(at, file)
            answer = _answer(sql)
            _reset(sql, rows)
            other = rival()
            same("the tables", answer, _answer(sql))
            setting.say(f"run {number}: ours {mine:.2f} s, theirs {other:.2f} s{'' if number else ' (warm-up)'}")
            if number:
                ours.append(mine)
                theirs.append(other)
    what = f"{rows:,} upserts into a table of {rows // 2:,} rows"
    return [compare_times("sink_postgres", what=what, rival=_RIVAL, must=">= 2", ours=ours, theirs=theirs, unit="s")]


def _rows(count: int) -> pa.Table:
    ids = np.random.default_rng(7).permutation(count)
    cents = pa.array(ids * 7 % 1_000_000).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    return pa.table(
        {
            "id": pa.array(ids),
            "name": pa.array([f"customer {number}" for number in ids]),
            "amount": cents.cast(pa.decimal128(12, 2)),
            "changed": pa.array(1_700_000_000_000_000 + ids, pa.timestamp("us", "UTC")),
        },
        schema=_SCHEMA,
    )


def _reset(sql: psycopg.Connection, rows: int) -> None:
    for statement in (
        "DROP TABLE IF EXISTS shop, staging",
        f"CREATE TABLE shop ({_COLUMNS})",
        f"INSERT INTO shop SELECT 2 * n, 'old', 0, now() FROM generate_series(0, {rows // 2 - 1}) n",
        "VACUUM ANALYZE shop",
        f"CREATE UNLOGGED TABLE staging ({_COLUMNS.replace(' PRIMARY KEY', '')})",
        "CHECKPOINT",
    ):
        sql.execute(statement)  # type: ignore[arg-type]


def _answer(sql: psycopg.Connection) -> Any:
    query = "SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM shop t"
    return sql.execute(query).fetchone()


def _ours(at: Postgres, file: Path) -> float:
    from headrace.connect import postgres

    clock = SystemClock()
    sink = postgres.upsert(at.url(), "shop").for_step(schema=_SCHEMA, key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=clock)
    writer = sink.open(writer=f"bench/{time.monotonic_ns()}/shop", clock=clock)
    began = time.perf_counter()
    writer.publish(0, _changes(file))
    took = time.perf_counter() - began
    writer.close()
    return took


def _changes(file: Path) -> Iterator[pa.RecordBatch]:
    for batch in pq.ParquetFile(file).iter_batches(100_000):
        yield batch.append_column("_deleted", pa.array(np.zeros(batch.num_rows, bool)))


@contextmanager
def _rival(at: Postgres, file: Path, jars: list[str]) -> Iterator[Callable[[], float]]:
    job = json.dumps({"url": at.url(), "port": at.port, "file": str(file), "jars": jars})
    command = [sys.executable, "-m", "bench.sink_postgres", job]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        to, back = process.stdin, process.stdout
        assert to is not None  # noqa: S101 -- they are pipes
        assert back is not None  # noqa: S101 -- they are pipes

        def once() -> float:
            to.write("go\n")
            to.flush()
            for line in back:
                if line.startswith("{"):
                    return float(json.loads(line)["seconds"])
            raise RuntimeError("Spark's process has ended")

        yield once
        to.close()


def main() -> None:
    """Be the rival: write once for each line of the input."""
    import psycopg

    from headrace.engine.spark.session import session

    job = json.loads(sys.argv[1])
    spark = session(master="local[2]", memory="4g", settings={"spark.jars": ",".join(job["jars"])})
    options = {
        "url": f"jdbc:postgresql://127.0.0.1:{job['port']}/postgres?reWriteBatchedInserts=true",
        "user": "postgres",
        "dbtable": "staging",
        "driver": "org.postgresql.Driver",
        "batchsize": "10000",
        "truncate": "true",
    }
    for _ in sys.stdin:
        began = time.perf_counter()
        rows = spark.read.parquet(job["file"]).repartition(2)
        rows.write.format("jdbc").options(**options).mode("append").save()
        with psycopg.connect(job["url"]) as sql:
            sql.execute(_UPSERT)
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
