"""The benches answer as their contract says; what they measure is for `python -m bench`, not for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.catalogue import BENCHES
from bench.figure import Figure, Skipped, WrongAnswer, compare_times, paired, percentile, same, table
from bench.kafka_bids import Bids, as_json, chunks
from bench.kafka_peers import RivalMissing

from bench import kafka_peers

KEYS = {"bench", "what", "rival", "ratio", "must", "holds", "ours", "theirs", "unit", "runs"}


@pytest.fixture
def bench(request):
    def run(*arguments):
        command = [sys.executable, "-m", "bench", *arguments]
        return subprocess.run(command, cwd=request.config.rootpath, capture_output=True, text=True, check=False)

    return run


def lines(ran):
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def figure(*, ratio, must):
    return Figure(bench="b", what="w", rival="r", ratio=ratio, must=must, ours=1, theirs=2, unit="s", runs=1)


def test_every_bench_is_listed(bench):
    listed = {line["bench"]: line for line in lines(bench("list", "--json"))}
    modules = (Path(__file__).parents[2] / "bench").glob("*.py")
    assert set(listed) == {path.stem for path in modules if "\ndef run(setting: Setting)" in path.read_text("utf-8")}
    assert listed["windowed_heavy"]["must"] == ">= 7"


def test_a_figure_is_one_object_a_line(bench):
    figures = lines(bench("log_append_bulk", "--scale", "0.01", "--without-spark", "--json"))
    assert [set(figure) for figure in figures] == [KEYS]
    assert all(figure["ratio"] > 0 and figure["must"] == ">= 0.7" for figure in figures)
    assert all(figure["holds"] == (figure["ratio"] >= 0.7) for figure in figures)


def test_a_rival_that_is_missing_is_reported_with_the_reason():
    missing = Skipped(bench="b", rival="Flink", reason="there is no java")
    assert json.loads(missing.json()) == {"bench": "b", "rival": "Flink", "skipped": "there is no java"}
    assert table([missing, figure(ratio=2, must=None)]).startswith("b: Flink was skipped: there is no java\nb: w\n")


def test_a_rival_without_its_folder_is_missing(monkeypatch):
    monkeypatch.delenv("HEADRACE_PEERS", raising=False)
    with pytest.raises(RivalMissing, match="HEADRACE_PEERS does not name"):
        kafka_peers.flink(Bids("localhost:1", "none", 1, Path("none")), "filter", runs=1)


def test_bids_are_the_same_each_time_and_in_the_order_of_event_time():
    first, again = next(chunks(1_000)), next(chunks(1_000))
    assert first.equals(again)
    assert first.num_rows == 1_000
    times = first["dateTime"].to_pylist()
    assert times == sorted(times)
    text = [json.loads(each) for each in as_json(first).to_pylist()]
    assert [row["auction"] for row in text] == first["auction"].to_pylist()
    assert 170 < sum(map(len, as_json(first).to_pylist())) / 1_000 < 210


def test_a_bench_that_does_not_exist_is_misuse(bench):
    ran = bench("windowed_lite")
    assert ran.returncode == 2
    assert "windowed_light" in ran.stderr


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_has_a_script_that_says_what_it_expects(name):
    module = __import__(f"bench.{name}", fromlist=["run"])
    assert "Expected:" in module.__doc__
    assert callable(module.run)


def test_a_must_is_a_bound_from_below_or_from_above():
    assert figure(ratio=4.0, must=">= 4").holds
    assert not figure(ratio=3.9, must=">= 4").holds
    assert figure(ratio=0.7, must="<= 0.7").holds
    assert not figure(ratio=0.71, must="<= 0.7").holds
    assert figure(ratio=9.0, must=None).holds


def test_ratios_are_of_runs_side_by_side():
    assert paired([2.0, 30.0, 4.0], [1.0, 10.0, 4.0]) == (2.0, (1.0, 3.0))
    figure = compare_times(
        "b", what="w", rival="r", must=None, ours=[1.0, 10.0, 4.0], theirs=[2.0, 30.0, 4.0], unit="s"
    )
    assert (figure.ratio, figure.spread, figure.ours, figure.theirs, figure.runs) == (2.0, (1.0, 3.0), 4.0, 4.0, 3)
    assert percentile([float(n) for n in range(200)], 0.99) == 198.0


def test_a_wrong_answer_stops_the_bench():
    same("rows", 1, 1)
    with pytest.raises(WrongAnswer, match="ours is 1, theirs is 2"):
        same("rows", 1, 2)


def test_help_is_printed(bench):
    ran = bench("--help")
    assert ran.returncode == 0, ran.stderr
    assert "of the rows" in ran.stdout
