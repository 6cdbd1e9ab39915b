"""Nexmark's queries answer what a batch engine answers over the same events, however these are cut into epochs."""

import json
from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest
from bench.nexmark import scale_picture, scaling
from bench.nexmark.__main__ import main
from bench.nexmark.answers import Kept, checksum
from bench.nexmark.checking import answer, by_duckdb, by_spark
from bench.nexmark.generator import RATE, Generator
from bench.nexmark.line import Line
from bench.nexmark.picture import picture
from bench.nexmark.point import Scaled
from bench.nexmark.queries import NAMES, QUERIES

from budget import matrix

CUTS = {7: (0, 600, 1_500, 1_550, 2_000), 8: (0, 50, 100, 1_500), 9: (0, 2_000)}
"""By seed, where epochs end: numbers of events."""
STATEFUL = ["q4", "q5", "q9", "q11", "q17"]


def events(seed):
    """Events of which one in fifty is late by up to three seconds, with prices of which many are equal."""
    generator = Generator(seed=seed, disorder=0.02, coarse=1_000)
    return [generator.chunk(first, last) for first, last in pairwise(CUTS[seed])]


@pytest.mark.parametrize("name", NAMES)
def test_verbs_and_sql_answer_what_duckdb_answers(name):
    cuts = events(7)
    expected = by_duckdb(QUERIES[name], cuts)
    for form in QUERIES[name].forms:
        assert answer(QUERIES[name], form, cuts) == expected
    assert expected


@pytest.mark.parametrize(("name", "at"), matrix(STATEFUL, ["after_staging", "after_commit"], depth=1))
def test_a_crash_changes_no_answer(name, at):
    cuts = events(8)
    assert answer(QUERIES[name], "verbs", cuts, crash_at=at) == by_duckdb(QUERIES[name], cuts)


@pytest.mark.prove
@pytest.mark.spark
@pytest.mark.parametrize("seed", CUTS)
@pytest.mark.parametrize("name", NAMES)
def test_batch_spark_answers_the_same(spark, name, seed):
    cuts = events(seed)
    expected = by_spark(spark, QUERIES[name], cuts)
    for form in QUERIES[name].forms:
        assert answer(QUERIES[name], form, cuts) == expected


def test_events_are_those_of_the_benchmark():
    whole = Generator().chunk(0, 50_000)
    assert [table.num_rows for table in whole] == [1_000, 3_000, 46_000]
    assert whole.auction["id"].to_pylist() == list(range(1_000, 4_000))
    assert whole.bid.equals(Generator().chunk(0, 50_000).bid)
    assert not whole.bid.equals(Generator(seed=1).chunk(0, 50_000).bid)
    last = whole.bid["dateTime"].to_pylist()
    assert last == sorted(last)
    assert (last[-1] - last[0]).total_seconds() == pytest.approx(50_000 / RATE, abs=0.01)
    hottest = max(whole.bid["auction"].value_counts().to_pylist(), key=lambda each: each["counts"])
    assert hottest["counts"] > 500, "an auction is hot for a while"


def test_a_checksum_knows_no_order_and_counts_withdrawals():
    kept = Kept()
    kept.write(0, pa.table({"a": [1, 2], "x": [0.5, 0.25], "_weight": [1, 1]}))
    kept.write(1, pa.table({"a": [1, 3], "x": [0.5, 0.75], "_weight": [-1, 1]}))
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS FROM (VALUES (0.75, 3), (0.25, 2)) v(x, a)")
        assert kept.answer() == checksum(con, "t")
        con.execute("INSERT INTO t VALUES (0.5, 1)")
        assert kept.answer() != checksum(con, "t")


def test_the_runner_prints_a_figure_a_query_and_draws_them(tmp_path, capsys):
    drawn = tmp_path / "nexmark.svg"
    asked = ["--events", "5k", "--queries", "q2,q17", "--rivals", "duckdb", "--runs", "1"]
    assert main([*asked, "--json", "--picture", str(drawn)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["query"] for line in lines] == ["q2", "q17"]
    assert all(line["rows"] == 4_600 and line["duckdb_ratio"] > 0 for line in lines)
    assert drawn.read_text() == picture([Line(**line) for line in lines])
    assert "q17" in drawn.read_text()


def test_all_queries_are_run_unless_some_are_named(capsys):
    assert main(["--events", "1k", "--rivals", "none", "--runs", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()] == list(NAMES)


def test_queries_are_measured_with_more_cores_events_and_shards(tmp_path, capsys):
    drawn = tmp_path / "scale.svg"
    asked = ["--queries", "q1", "--carriers", "in process", "--events", "5k,10k", "--cores", "1,2", "--shards", "1,3"]
    assert scaling.main([*asked, "--json", "--picture", str(drawn)]) == 0
    points = [Scaled(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    changed = [(1, 5_000, 1), (2, 5_000, 1), (2, 10_000, 1), (2, 5_000, 3)]
    assert [(point.cores, point.events, point.shards) for point in points] == changed
    assert all(point.rate > 0 and point.memory > 0.01 for point in points)
    assert drawn.read_text() == scale_picture.picture(points)
    assert drawn.read_text().count("<circle") == 6


@pytest.mark.parametrize("runner", [main, scaling.main])
def test_a_query_that_does_not_exist_is_misuse(runner, capsys):
    with pytest.raises(SystemExit) as ended:
        runner(["--queries", "q99"])
    assert ended.value.code == 2
    assert "q99" in capsys.readouterr().err
