"""The benches by name, without importing what they need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bench:
    """What a bench measures, its rival, and its target (`must`)."""

    what: str
    rival: str
    must: str


_SPARK = "Spark's own streaming aggregate over Parquet of the same rows, RocksDB state, update mode"

BENCHES = {
    "windowed_light": Bench(
        "count and sum in 10-minute windows, 10 k keys, 4 M rows from a topic: the state is light",
        _SPARK,
        ">= 5; >= 7 at --scale 10",
    ),
    "windowed_heavy": Bench(
        "count and sum in 10-second windows, 2.5 M groups, 4 M rows from a topic: the state is heavy", _SPARK, ">= 7"
    ),
    "hopping_overlap": Bench(
        "10-minute windows every 10 s (60 overlap), final results, 4 M rows, 1 k keys: time to catch up",
        "the same every 5 minutes (2 overlap)",
        "<= 2",
    ),
    "join_interval": Bench(
        "two streams of 1 M rows over an hour joined within 10 minutes, inner and left: time to catch up",
        "Spark's own stream-stream join over Parquet of the same rows, append mode, the best of both stores",
        ">= 8",
    ),
    "tiny_epoch": Bench(
        "an epoch of 100 rows on Spark, one level",
        "Spark's own stateful aggregate, 100 rows: as installed; with our quiet checkpoint files",
        "<= 0.7; <= 1.4",
    ),
    "driver_step": Bench(
        "Driver in process, three stateful steps: send + step + view",
        "an epoch of Spark's own stateful aggregate as installed; reported: the same on the Spark carrier",
        "<= 0.1",
    ),
    "log_append_bulk": Bench(
        "fsynced appends of 10 k records of 100 bytes", "write + fsync of the same bytes to a plain file", ">= 0.7"
    ),
    "log_append_single": Bench(
        "100-byte records one at a time from 8 threads, 1 000 unacknowledged each, acknowledged after fsync",
        "SQLite, WAL, synchronous=FULL, a row a transaction",
        ">= 50",
    ),
    "log_compact": Bench(
        "compaction of 10 M records of 100 bytes, 1 M keys; and the most memory of its process",
        "DuckDB: the last row of each key from Parquet to Parquet; 1 GB",
        ">= 0.5; <= 1",
    ),
    "log_read": Bench(
        "Topic.read of 1 M records of 100 bytes into Arrow, mapped; each batch checked once per open log",
        "pyarrow.ipc reading the same batches from a mapped file",
        ">= 0.8",
    ),
    "log_replay_spark": Bench(
        "a whole topic read into plain Spark: records of 85 bytes, and three numbers; dropped, and aggregated",
        "Spark's Parquet source, same rows",
        ">= 1.0",
    ),
    "state_growth": Bench("an epoch of 1 000 rows on a state 10 times larger", "the same on the smaller", "<= 1.3"),
    "expressions": Bench(
        "30 everyday expressions over 5 M rows of Parquet, geometric mean",
        "the same in Spark SQL, code generated and warm, noop sink",
        ">= 1.5",
    ),
    "avro_decode": Bench(
        "4 M bids as Avro records in Parquet to columns",
        "Spark's from_avro, warm, noop sink",
        ">= 2",
    ),
    "table_churn": Bench(
        "an epoch that changes 0.1 % of a table of 20 M rows, and with it an aggregate of 100 k groups",
        "Spark recomputes the aggregate from Parquet of the same state",
        ">= 10",
    ),
    "table_growth": Bench(
        "an epoch of 20 000 upserts into a table of 20 M rows, and an aggregate of 100 k groups",
        "the same into 2 M rows",
        "<= 1.3",
    ),
    "session": Bench(
        "session windows of 30 s, final results, 2 M rows from a topic",
        "Spark's `session_window` over Parquet of the same rows, RocksDB state, append mode",
        ">= 5",
    ),
    "dedupe": Bench(
        "the first row of each key, 2 M rows with 1 M keys from a topic",
        "Spark's `dropDuplicatesWithinWatermark` over Parquet of the same rows, RocksDB state",
        ">= 6",
    ),
    "top_n": Bench(
        "an epoch that changes 20 000 rows of 2 M: the 10 greatest of each of 100 k groups",
        "Spark's `applyInPandasWithState` that keeps the rows of each group, RocksDB state",
        ">= 20",
    ),
    "join_stream_table": Bench(
        "2 M rows in 4 epochs look up a table of 1 M rows, 1 % of which change before each epoch",
        "Spark's `foreachBatch`: each batch joined with the table, reloaded from Parquet",
        ">= 2",
    ),
    "search_stream": Bench(
        "100 k documents of 100 words pass 100 k stored queries, 1 % of which change before each of 5 epochs",
        "100 k documents a minute of processor time; Tantivy: every query asked of an index of each epoch's documents",
        ">= 1; against Tantivy reported",
    ),
    "join_as_of": Bench(
        "2 M rows joined with the versions of their time, 200 k versions, in 4 epochs",
        "one Spark batch over all rows: union and a last-value window; DuckDB's own ASOF JOIN, reported",
        ">= 1",
    ),
    "join_tables": Bench(
        "orders with their buyers, 1 M x 1 M, by a foreign key; 1 % of each side changes an epoch",
        "Spark joins both tables again, from Parquet",
        ">= 8",
    ),
    "timeline": Bench(
        "10 k tweets to their authors' followers: 100 k users, 2 M follows, 500 k tweets before",
        "Spark joins all tweets with the follows again, from Parquet",
        ">= 15",
    ),
    "sliding": Bench(
        "sliding windows of a minute, corrected results, 1 M rows and 10 k keys from a topic: time to catch up",
        "a batch self-join in Spark over Parquet of the same rows",
        "report",
    ),
    "patterns": Bench(
        "low{3,} high within 5 minutes, final matches, 1 M rows and 10 k keys from a topic: time to catch up",
        "a batch in Spark: applyInPandas over the sorted rows of each key, and Python's re",
        "report",
    ),
    "kafka_filter": Bench(
        "4.6 M bids as JSON in Kafka, filtered and counted: on Spark, and in process",
        "Spark with its connector and from_json; Flink SQL; both warm",
        ">= 3; >= 1.2",
    ),
    "kafka_windowed": Bench(
        "4.6 M bids as JSON in Kafka, counted and summed by auction in windows of 10 s: on Spark, and in process",
        "the same in Spark, Flink SQL, Kafka Streams, Quix, Bytewax, Pathway",
        ">= 4; >= 1.5; >= 2; >= 10; >= 10; report",
    ),
    "kafka_topic_to_topic": Bench(
        "4.6 M bids from topic to topic, four of seven columns, exactly once: on Spark, and in process",
        "Spark's Kafka sink, at least once; Flink's sink, exactly once; both warm",
        ">= 2; >= 1",
    ),
    "kafka_latency": Bench(
        "1 000 events a second counted by key from topic to topic, exactly once: milliseconds, median and p99",
        "Spark, micro-batches as installed; Flink, exactly once, checkpoints each second; Kafka Streams",
        "<= 0.6; <= 0.5; report",
    ),
    "latency": Bench(
        "1 000 events a second counted by key from topic to topic, exactly once: milliseconds, median and p99",
        "Spark with its connector over Kafka, micro-batches as installed",
        "<= 0.5 on Spark; <= 0.15 in process",
    ),
    "cold_start": Bench(
        "from `headrace run` to the first committed epoch, and the second epoch",
        "bare PySpark with its own streaming aggregate over Parquet, as installed",
        ">= 0.833 (1.2 times its time)",
    ),
    "kafka_malformed": Bench(
        "2 M records from Kafka, 1 M of them malformed: each becomes a dead letter that names it",
        "itself on 2 M clean records",
        ">= 0.3",
    ),
    "cdc_postgres": Bench(
        "1 M row changes from a replication slot of PostgreSQL into a topic, decoded and durable",
        "pg_recvlogical to a file, same plugin and publication",
        ">= 0.5",
    ),
    "cdc_mariadb": Bench(
        "1 M row changes from the binary log of MariaDB into a topic, decoded and durable",
        "mariadb-binlog over the network to a file, rows decoded to text",
        ">= 1",
    ),
    "sink_postgres": Bench(
        "1 M upserts of a table into PostgreSQL, half of them of new keys, exactly once",
        "Spark's JDBC writer into a staging table, then INSERT … ON CONFLICT",
        ">= 2",
    ),
    "views_postgres": Bench(
        "epochs of upserts, large and small, applied to a view in PostgreSQL",
        "the same in SQLite",
        None,
    ),
    "cdc_snapshot": Bench(
        "5 M rows of a table of PostgreSQL into a topic, in chunks, while a writer runs",
        "COPY … TO STDOUT, thrown away, while the same writer runs",
        ">= 0.5",
    ),
    "cdc_latency": Bench(
        "from a commit in PostgreSQL to the changed view, 500 transactions a second: on Spark, and in process",
        "an epoch of 100 rows on Spark, same run",
        "<= 2",
    ),
    "events_append": Bench(
        "durable appends of an event with a version check, 8 threads: waiting for each, and 100 on their way",
        "the same in PostgreSQL, a transaction an append, fsync on, 8 connections",
        ">= 5",
    ),
    "queue_work": Bench(
        "take and acknowledge durable tasks of 200 bytes, 8 worker processes",
        "RabbitMQ with manual acknowledgements through pika, the better of one each and one for 100",
        ">= 3",
    ),
    "queue_latency": Bench(
        "from a durable put to the task at a worker of another process: median and 99 %",
        "RabbitMQ with confirms and manual acknowledgements through pika",
        "<= 1",
    ),
    "group_read": Bench(
        "2 M records of 200 bytes read by a group of two processes",
        "Kafka with confluent-kafka",
        ">= 3",
    ),
    "bridge_rabbitmq": Bench(
        "messages of 200 bytes from RabbitMQ into a topic, durable before they are acknowledged",
        "a pika consumer that writes a file and syncs it by batches",
        ">= 0.8",
    ),
    "statsd_ingest": Bench(
        "datagrams of one metric a second without loss, into a durable topic",
        "StatsD on Node.js, counters in memory",
        ">= 3",
    ),
    "webhook_ingest": Bench(
        "durable answers 2xx a second, 32 clients that wait for each",
        "an ASGI application that writes each request to SQLite, WAL, synchronous=FULL",
        ">= 10",
    ),
}
