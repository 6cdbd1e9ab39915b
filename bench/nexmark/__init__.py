"""Nexmark: an auction house as three streams, and 23 queries over them.

    python -m bench.nexmark --events 5M --queries all --rivals spark,duckdb

`generator` makes the events, `queries` has a file a query, `checking` compares answers with batch Spark, `racing` times
ours and the rivals. The events and queries are those of the Nexmark benchmark for streams (Tucker, Tufte, Papadimos,
Maier: "NEXMark: A Benchmark for Queries over Data Streams") as Apache Beam and Flink have made them known.
"""
