"""Simulated cases: random apps, inputs and misfortunes. `scripts/simulate.py` plays as many as one likes."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import pytest
from scripts.simulate import SparkOracle

from headrace.testing import simulate
from headrace.testing.faults import Crash, Faults
from headrace.testing.simulation import Case, Outcome, Output, Step, check, draw, outcome_of
from headrace.testing.simulation.oracle import DuckOracle
from headrace.testing.simulation.play import Play

ACCIDENTS = 5
SEEDS, FAST_SEEDS = 25, 7
"""How many seeds a case of the test has; `FAST_SEEDS` of the first case are played in each run of the tests."""
WORDS = (".as_table(", ".as_table(keep=", ".over(", "ties=", ".suppress(", 'emit="every', ".latest()", "values=[")
WORDS += (
    ".match(",
    ".search(",
    ".explode(",
    'how="semi", grace',
    'how="anti", grace',
    "ROLLUP",
    "EXCEPT ALL",
    "NOT IN",
    ".late.to_view(",
    'grace="0 seconds"',
)
SOURCE = Step(
    "s", (), 'app.stream("s", SCHEMA, key="id", event_time="ts", out_of_order="9 days")', "SELECT * FROM s_current"
)
ROWS = ((1, "a", 0, 1, 1_767_225_600_000), (2, "b", 0, 2, 1_767_225_601_000), (3, "a", 0, 3, 1_767_225_602_000))


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.prove) for first in (1000, 2000, 3000))])
def test_every_output_of_a_simulated_app_is_the_batch_query(first):
    for seed in range(first, first + (SEEDS if first else FAST_SEEDS)):
        finding = simulate(seed)
        assert finding is None, finding.text()


def test_shards_in_threads_and_caches_that_take_turns_change_no_output():
    """So it is in the workers of Spark."""
    for seed in range(4000, 4000 + FAST_SEEDS):
        finding = simulate(seed, carrier="threads")
        assert finding is None, finding.text()


def counted(sql):
    """Return a case of an app that counts, and the batch query that it is compared with."""
    count = Step("x", ("s",), '{0}.group_by("k").agg(n="count(*)").named("{me}")', sql)
    actions = (("send", "s", ROWS[:2]), ("step",), ("crash", "after_commit"), ("send", "s", ROWS[2:]))
    return Case((SOURCE, count), (Output("v", "x", "view"), Output("o", "x", "topic")), actions, seed=7)


def test_a_case_fails_where_the_batch_query_is_another():
    """The instrument can fail: a wrong query is noticed, and said with the rows."""
    assert check(counted("SELECT k, count(*) AS n FROM {0} GROUP BY k")) is None
    failure = check(counted("SELECT k, count(*) + 1 AS n FROM {0} GROUP BY k"))
    assert failure is not None
    assert failure.kind == "wrong view"
    assert "missing ('a', 3)" in failure.detail


def test_an_error_of_the_app_is_a_failure():
    failing = replace(counted("SELECT 1"), actions=(("send", "s", ROWS), ("crash", "nowhere")))
    failure = check(failing)
    assert failure is not None
    assert "no crash point" in failure.detail


def test_programs_use_the_whole_vocabulary():
    """A word that no seed draws is tested by nothing."""
    missing = set(WORDS)
    for seed in range(600):
        program = draw(seed).program()
        missing = {word for word in missing if word not in program}
    assert not missing


def test_an_armed_point_stays_in_its_process():
    """A task of Spark that starts while a point is armed would die of its copy, and so would each repetition."""
    faults = Faults()
    faults.arm("after_staging")
    pickle.loads(pickle.dumps(faults))("after_staging")  # noqa: S301 -- our own bytes
    with pytest.raises(Crash):
        faults("after_staging")


def test_equal_seeds_draw_equal_cases():
    assert draw(11) == draw(11)
    assert draw(11) != draw(12)


def test_a_case_that_is_played_again_writes_the_same_commits(tmp_path):
    """Ids and clocks are the case's, so that what happens to the files of one run happens to those of the next."""
    commits = []
    for name in ("first", "again"):
        play = Play(draw(3), tmp_path / name, "in process", DuckOracle())
        with play.machine.watched():
            play.run()
        play.machine.stop()
        commits.append({path.name: path.read_bytes() for path in (play.machine.storage / "epochs").glob("*.json")})
    assert commits[0] == commits[1]
    assert len(commits[0]) > 3


def test_the_text_of_a_case_is_a_test_that_plays_it():
    case = counted("SELECT k, 5 AS n FROM {0} GROUP BY k")
    names = {}
    exec(case.text(), names)  # noqa: S102 -- our own text
    with pytest.raises(AssertionError, match="wrong view"):
        names["test_the_simulated_case_of_seed_7"]()


def test_a_failing_case_is_made_small(monkeypatch):
    """Of a drawn case whose output is wrong only what is needed to be wrong is left."""
    from headrace.testing.simulation import simulating

    case = counted("SELECT k, 5 AS n FROM {0} GROUP BY k")
    useless = Step("y", ("s",), '{0}.where("v > 0")', "SELECT * FROM {0} WHERE v > 0")
    large = replace(case, steps=(*case.steps, useless), outputs=(*case.outputs, Output("w", "y", "view")))
    monkeypatch.setattr(simulating, "draw", lambda _, **__: large)
    finding = simulate(1)
    assert finding is not None
    assert [output.name for output in finding.case.outputs] == ["v"]
    assert [step.name for step in finding.case.steps] == ["s", "x"]
    assert [action[0] for action in finding.case.actions] == ["send"]
    assert len(finding.case.actions[0][2]) == 1


def test_a_power_cut_in_the_first_epoch_loses_nothing_acknowledged():
    """The folder of the app was new: its name is synced before anything in it is acknowledged."""
    case = counted("SELECT k, count(*) AS n FROM {0} GROUP BY k")
    for call in range(0, 60, 10):
        cut = replace(case, actions=(("send", "s", ROWS), ("power", call, call)))
        failure = check(cut)
        assert failure is None, f"{cut.text()}\n{failure}"


@pytest.mark.parametrize("first", [0, pytest.param(5000, marks=pytest.mark.prove)])
def test_after_an_accident_every_output_is_right_or_the_app_says_why_not(first):
    endings = Counter()
    for seed in range(first, first + (ACCIDENTS if first == 0 else 100)):
        finding = simulate(seed, accidents=True, endings=endings)
        assert finding is None, finding.text()
    assert endings.total() >= ACCIDENTS


def test_an_app_restored_alone_goes_on_with_the_epochs_that_its_log_knows():
    case = counted("SELECT k, count(*) AS n FROM {0} GROUP BY k")
    actions = (("send", "s", ROWS[:1]), ("step",), ("keep",), ("send", "s", ROWS[1:]), ("step",), ("restore", "app"))
    outcome = outcome_of(replace(case, actions=actions))
    assert outcome == Outcome(accidents=("restored app",))


def test_a_log_restored_alone_is_refused_by_name():
    case = counted("SELECT k, count(*) AS n FROM {0} GROUP BY k")
    actions = (("send", "s", ROWS[:1]), ("step",), ("keep",), ("send", "s", ROWS[1:]), ("step",), ("restore", "log"))
    outcome = outcome_of(replace(case, actions=actions))
    assert outcome.failure is None
    assert outcome.ended == "OFFSETS_BEYOND_END"


def test_an_output_without_the_rows_before_it_is_not_compared_where_the_app_says_so():
    """A new view of a stream begins with the rows from now on; one of a group has all of them."""
    case = counted("SELECT k, count(*) AS n FROM {0} GROUP BY k")
    raw = Output("raw", "s", "view")
    for outputs, fewer, ended in (
        ((*case.outputs, raw), ("raw",), "right, in part"),
        ((*case.outputs, raw), ("v",), "right"),
    ):
        actions = (("send", "s", ROWS), ("step",), ("program", "fewer", fewer, None))
        outcome = outcome_of(replace(case, outputs=outputs, actions=actions))
        assert outcome == Outcome(accidents=("program: fewer",), ended=ended)


def test_a_wrong_output_after_an_accident_is_a_failure():
    wrong = counted("SELECT k, count(*) + 1 AS n FROM {0} GROUP BY k")
    failure = check(replace(wrong, actions=(("send", "s", ROWS), ("step",), ("lose",))))
    assert failure is not None
    assert failure.kind == "wrong view"


@pytest.mark.spark
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(100, 160), marks=pytest.mark.prove)])
def test_batch_spark_gives_what_the_oracle_gives(spark, seeds):
    """The same text of SQL, answered by both."""
    oracle = SparkOracle(spark)
    for seed in seeds:
        finding = simulate(seed, oracle=oracle)
        assert finding is None, finding.text()


@pytest.mark.spark
@pytest.mark.prove
@pytest.mark.parametrize("seed", [0, 1])
def test_a_crash_on_spark_ends_its_query_and_the_app_goes_on(spark, seed):
    """Points of the driver and calls of its file system; Spark's epochs are spread with the one seed, small else."""
    del spark
    case = counted("SELECT k, count(*) AS n FROM {0} GROUP BY k")
    crashes = (("crash", "during_commit"), ("crash", "between_topics"), ("fault", 3, "torn", "epoch"),
               ("fault", 5, "EIO", "epoch"))  # fmt: skip
    sends = (("send", "s", ((number, "b", 0, 3, 1_767_225_602_000),)) for number in range(4, 8))
    actions = (*case.actions, *(action for pair in zip(sends, crashes, strict=True) for action in pair))
    failure = check(replace(case, actions=actions, seed=seed), carrier="spark")
    assert failure is None, failure
