"""Record what Debezium Engine writes about a small database of PostgreSQL; see README.md."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from scripts.broker.jars import fetched, java
from scripts.broker.servers import Servers
from scripts.servers.postgres import Postgres

HERE = Path(__file__).parent
VERSION = "3.4.3.Final"
JARS = (
    f"io.debezium:debezium-embedded:{VERSION}",
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    "org.slf4j:slf4j-simple:2.0.17",
)
TABLES = ("things", "orders", "big_full", "emptied", "ends")
LAST = "the last message"
BEFORE = [
    "CREATE TYPE mood AS ENUM ('glad', 'sad')",
    "CREATE DOMAIN age AS int CHECK (value > 0)",
    """CREATE TABLE things (id bigint PRIMARY KEY, small smallint, whole int, real4 real, real8 double precision,
    price numeric(12, 3), free numeric, yes boolean, name text, short varchar(20), code char(4), raw bytea, day date,
    at timestamptz, local timestamp, of_day time, doc jsonb, id16 uuid, feeling mood, years age, tags text[],
    numbers int[], big text, raw_big bytea, many_tags text[], many int[])""",
    *(f"ALTER TABLE things ALTER COLUMN {each} SET STORAGE EXTERNAL" for each in ("raw_big", "many_tags", "many")),
    "ALTER TABLE things ALTER COLUMN big SET STORAGE EXTERNAL",
    "CREATE TABLE orders (shop int, number int, total numeric(10, 2) NOT NULL, PRIMARY KEY (shop, number))",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    "CREATE TABLE big_full (id int PRIMARY KEY, note text, big text)",
    "ALTER TABLE big_full REPLICA IDENTITY FULL",
    "ALTER TABLE big_full ALTER COLUMN big SET STORAGE EXTERNAL",
    "CREATE TABLE emptied (id int PRIMARY KEY)",
    "CREATE TABLE ends (id int PRIMARY KEY, word text)",
    "INSERT INTO things (id, name, at) VALUES (1, 'before', '2026-01-31 10:00:00.123456+00')",
    "INSERT INTO orders VALUES (1, 1, 10.50), (1, 2, -0.05)",
    "INSERT INTO emptied VALUES (1), (2)",
]
CHANGES = [
    """INSERT INTO things VALUES (2, -32768, 2147483647, 1.5, 0.1, -123456.789, 12345678901234567890.123, true,
    'Zoë "q" \\ 試', 'v', 'ab', '\\x00ff10', '1969-12-31', '2026-07-01 23:59:59.999999+02', '1999-12-31 23:59:59.001',
    '12:34:56.789', '{"a": [1, null, "é"]}', '8b7f3c52-2a3e-4c55-9f0a-7d4f2f0c1a11', 'sad', 7, '{a,"b,c",NULL}',
    '{1,2,3}')""",
    "INSERT INTO things (id) VALUES (3), (4), (5)",
    "INSERT INTO things (id, big) VALUES (6, repeat('x', 2100))",
    "INSERT INTO things (id, raw_big) VALUES (7, convert_to(repeat('x', 2100), 'UTF8'))",
    "INSERT INTO things (id, many_tags) VALUES (8, (SELECT array_agg('tag'::text) FROM generate_series(1, 400)))",
    "INSERT INTO things (id, many) VALUES (9, (SELECT array_agg(7) FROM generate_series(1, 600)))",
    "UPDATE things SET name = 'changed', price = 0.001 WHERE id = 1",
    "UPDATE things SET at = '1969-12-31 23:59:59.5+00', day = '9999-12-31' WHERE id = 3",
    "DELETE FROM things WHERE id = 4",
    "UPDATE things SET id = 50 WHERE id = 5",
    """BEGIN; UPDATE orders SET total = total + 1 WHERE number = 1; DELETE FROM orders WHERE number = 2;
    INSERT INTO orders VALUES (2, 1, 99999999.99); COMMIT""",
    "BEGIN; INSERT INTO orders VALUES (9, 9, 9); ROLLBACK",
    "INSERT INTO big_full VALUES (1, 'a', repeat('y', 2100))",
    "UPDATE big_full SET note = 'b'",
    "TRUNCATE emptied",
    "INSERT INTO emptied VALUES (3)",
    "UPDATE things SET name = 'big stays' WHERE id BETWEEN 6 AND 9",
    f"INSERT INTO ends VALUES (1, '{LAST}')",
]
RECORDS = {
    "plain": ["false"],
    "schemas": ["true"],
    "options": [
        "false",
        "time.precision.mode=connect",
        "decimal.handling.mode=string",
        "provide.transaction.metadata=true",
    ],
}


def record(server: Postgres, name: str, schemas: str, *settings: str) -> None:
    """Record one file, with the state of the database at the end."""
    with psycopg.connect(server.url(), autocommit=True) as sql:
        sql.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url(name), autocommit=True) as sql:
        for each in BEFORE:
            sql.execute(each)
        said = HERE / f"{name}.tsv"
        command = [str(java()), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{fetched(*JARS)}/*"]
        command += [str(HERE / "RecordDebezium.java"), str(server.port), name, f"slot_{name}", str(said), schemas, LAST]
        engine = subprocess.Popen([*command, "skipped.operations=none", *settings])
        look = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        try:
            while not sql.execute(look, [f"slot_{name}"]).fetchone():
                if engine.poll() is not None:
                    raise RuntimeError("Debezium has ended")
                time.sleep(0.2)
            for each in CHANGES:
                sql.execute(each)
            engine.wait(120)
        finally:
            engine.kill()
        rows = [
            f'"{each}": ' + sql.execute(f"SELECT json_agg(it)::text FROM {each} it").fetchone()[0] for each in TABLES
        ]
        (HERE / f"{name}.json").write_text("{" + ",\n".join(rows) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        server = Postgres(Servers(Path(folder), shared=False))
        server.start()
        try:
            for name, settings in RECORDS.items():
                record(server, name, *settings)
        finally:
            server.kill()
