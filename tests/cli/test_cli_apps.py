"""status and reset, on an app that ran, that never ran, and that runs."""

import json
from pathlib import Path

import pytest

from headrace.base.errors import PlanChanged
from headrace.engine.storage import Storage


def test_the_status_of_an_app_that_never_ran(headrace, program):
    result = headrace("status", program())
    assert result.code == 0
    assert result.out.startswith("app shop does not run; it has not run an epoch yet")


def test_the_status_of_an_app_that_ran(headrace, ran):
    file = ran()
    result = headrace("status", file)
    assert result.code == 0
    assert "lag 0 rows" in result.out
    lines = {line.split()[0]: line.split() for line in result.out.splitlines() if line}
    assert lines["orders"][1:3] == ["3", "0"]
    assert lines["orders_of"][3] == "2"
    status = json.loads(headrace("status", file, "--json").out)
    assert status["running"] is False
    assert status["sources"]["orders"]["watermark"] == "2026-01-31T10:20:00Z"


def test_the_status_of_an_app_that_runs_says_so_and_a_reset_is_refused(headrace, ran):
    file = ran()
    storage = Storage(Path("shop"), "shop")
    storage.acquire()
    try:
        assert headrace("status", file).out.startswith("app shop runs;")
        result = headrace("reset", file, "--yes")
        assert result.code == 1
        assert result.err.startswith("[STORAGE_BUSY] another process runs an app on the storage shop")
    finally:
        storage.release()


def test_the_storage_of_another_app_is_refused(headrace, ran, program):
    ran()
    other = program(
        'import headrace as hr\napp = hr.App("other", storage="shop")\napp.stream("t", "a int").to_view("v")'
    )
    for command in (["status"], ["reset", "--yes"]):
        result = headrace(*command, other)
        assert result.code == 1
        assert result.err.startswith('[STORAGE_OF_ANOTHER_APP] the storage shop belongs to the app "shop"')


def test_a_reset_shows_what_is_lost_and_does_nothing_unless_told(headrace, ran):
    file = ran()
    result = headrace("reset", file)
    assert result.code == 1
    assert '"orders" is replayed up to where it was read: 3 offsets' in result.err
    assert 'the state of step "orders_of": 2 rows' in result.err
    assert 'the view "spent": 2 rows' in result.err
    assert "Topics stay" in result.err
    assert "[NOT_CONFIRMED]" in result.err
    assert "--yes" in result.err
    assert "rows" in headrace("views", "show", "spent", "--storage", "shop").err


def test_a_reset_app_starts_anew_and_keeps_its_topics(headrace, ran):
    file = ran()
    first = json.loads(headrace("topics", "list", "--app", file, "--json").out)
    result = headrace("reset", file, "--outputs", "again", "--yes", "--json")
    assert result.code == 0
    assert json.loads(result.out)["lost"]["views"] == {"orders_of": 2, "spent": 2}
    assert "it has not run an epoch yet" in headrace("status", file).out
    assert json.loads(headrace("topics", "list", "--app", file, "--json").out) == first
    again = headrace("reset", file, "--outputs", "again")
    assert (again.code, again.out) == (0, "app shop has computed nothing yet: there is nothing to forget\n")
    ran([], file=file)
    rows = json.loads(headrace("views", "show", "orders_of", "--app", file, "--json").out)["rows"]
    assert rows == [{"user": "ann", "n": 2}, {"user": "bob", "n": 1}]


def test_a_reset_app_appends_nothing_again_to_its_topics(headrace, ran):
    file = ran()
    first = json.loads(headrace("topics", "list", "--app", file, "--json").out)
    asked = headrace("reset", file)
    assert '"orders" is replayed up to where it was read: 3 offsets' in asked.err
    result = headrace("reset", file, "--yes", "--json")
    lost = json.loads(result.out)["lost"]
    assert lost["outputs"] == "keep"
    assert [reach["first"] for reach in lost["replayed"]["orders"].values()] == [0]
    ran([], file=file)
    assert json.loads(headrace("topics", "list", "--app", file, "--json").out) == first
    rows = json.loads(headrace("views", "show", "orders_of", "--app", file, "--json").out)["rows"]
    assert rows == [{"user": "ann", "n": 2}, {"user": "bob", "n": 1}]


def test_outputs_are_of_a_whole_reset_only(headrace, ran):
    result = headrace("reset", ran(), "--step", "orders_of", "--outputs", "again", "--yes")
    assert result.code == 2
    assert "--outputs is for a whole reset" in result.err


@pytest.mark.parametrize(("step", "hint"), [("spnt", 'Did you mean "spent"?'), ("orders", "keeps no state")])
def test_a_step_that_cannot_be_reset_is_named(headrace, ran, step, hint):
    result = headrace("reset", ran(), "--step", step, "--yes")
    assert result.code == 1
    assert hint in result.err
    assert "orders_of, spent" in result.err


def test_a_changed_step_is_refused_and_after_its_reset_the_app_goes_on(headrace, ran, program):
    file = ran()
    program(Path(file).read_text().replace('agg(n="count(*)")', 'agg(n="count(*)", most="max(price)")'))
    with pytest.raises(PlanChanged) as raised:
        ran([], file=file)
    assert "--step orders_of" in str(raised.value)
    result = headrace("reset", file, "--step", "orders_of", "--yes")
    assert (result.code, result.out) == (0, 'reset the step "orders_of" of app shop; its topics are as they were\n')
    ran([{"user": "ann", "price": 9, "at": "2026-01-31 10:30"}], file=file)
    shown = json.loads(headrace("views", "show", "orders_of", "--app", file, "--json").out)
    assert shown["rows"] == [{"user": "ann", "n": 3, "most": 9}, {"user": "bob", "n": 1, "most": 4}], "replayed"
    spent = json.loads(headrace("views", "show", "spent", "--app", file, "--json").out)["rows"]
    assert [row["spent"] for row in spent] == [17, 4]


@pytest.mark.parametrize("command", [["status"], ["diff"], ["reset", "--yes"]], ids=lambda words: words[0])
def test_a_mistyped_storage_is_an_error_and_not_an_app_that_never_ran(headrace, ran, command):
    file = ran()
    assert headrace(command[0], file, *command[1:], "--storage", "shop").code == 0
    result = headrace(command[0], file, *command[1:], "--storage", "shpo")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("[NO_STORAGE] there is no storage shpo")
    assert "Did you mean --storage shop?" in result.err
