"""`headrace diff` says what a changed program means for what its storage has, and touches nothing."""

import json
from pathlib import Path

from headrace.engine.storage import Storage


def changed(file, *pairs):
    text = Path(file).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    Path(file).write_text(text)


def files_of(storage):
    return {str(path): path.read_bytes() for path in Path(storage).rglob("*") if path.is_file()}


FILTER = ('spent.to_view("spent")', 'spent.where("spent > 3").to_view("spent")')


def test_an_app_that_never_ran_has_nothing_to_compare(headrace, program):
    result = headrace("diff", program())
    assert result.code == 0
    assert result.out == "app shop has not run an epoch yet: there is nothing to compare with\n"
    assert not Path("shop").exists()


def test_the_same_program_is_said_to_be_the_same(headrace, ran):
    result = headrace("diff", ran())
    assert result.code == 0
    assert result.out.startswith("app shop is the program that ran epoch ")


def test_what_would_be_refused_is_said_before_anything_starts_and_exits_with_3(headrace, ran):
    file = ran()
    changed(file, FILTER)
    before = files_of("shop")
    result = headrace("diff", file)
    assert result.code == 3
    assert "it would not start:" in result.out
    assert 'refused: the view "spent" has rows of another input than it would be fed with' in result.out
    assert "Undo the change, or give the view another name." in result.out
    assert files_of("shop") == before
    started = headrace("run", file, "--local", "--until-caught-up")
    assert started.code == 1
    assert "[PLAN_CHANGED]" in started.err
    assert "starting" not in started.err, "it was refused before anything started"
    assert files_of("shop") == before


def test_a_change_that_passes_is_shown_by_diff_and_by_run_and_not_again_after_it(headrace, ran):
    file = ran()
    changed(file, ('orders.group_by("user").agg(n=', 'orders.where("price > 3").group_by("user").agg(n='))
    result = headrace("diff", file)
    assert result.code == 0
    assert 'what the step "orders_of" is fed with has changed' in result.out
    assert 'The rows from offset 3 of "orders" on are computed in the new way' in result.out
    started = headrace("run", file, "--local", "--until-caught-up")
    assert started.code == 0
    assert 'what the step "orders_of" is fed with has changed' in started.err
    assert "has changed" not in headrace("run", file, "--local", "--until-caught-up").err
    assert headrace("diff", file).out.startswith("app shop is the program that ran epoch ")


def test_an_input_of_which_more_columns_are_read_is_not_shown_as_two_equal_texts(headrace, ran):
    file = ran()
    changed(file, ("count(*)", "sum(price)"))
    said = headrace("diff", file).out
    assert 'It was "source orders", and is "source orders"' not in said
    assert 'It is "source orders" as before, with other columns or another meaning.' in said


def test_json_has_an_entry_for_every_step_sink_and_source(headrace, ran):
    file = ran()
    changed(file, FILTER)
    result = headrace("diff", file, "--json")
    assert result.code == 3
    said = json.loads(result.out)
    assert said["starts"] is False
    entries = {(entry["part"], entry["name"]): entry for entry in said["changes"]}
    assert set(entries) == {
        ("step", "spent"),
        ("step", "orders_of"),
        ("view", "spent"),
        ("topic", "spent_changes"),
        ("view", "orders_of"),
        ("source", "orders"),
    }
    assert entries["view", "spent"]["outcome"] == "refused"
    assert entries["step", "spent"]["kind"] == "unchanged"


def test_it_works_while_the_app_runs(headrace, ran):
    file = ran()
    storage = Storage(Path("shop"), "shop")
    storage.acquire()
    try:
        assert headrace("diff", file).code == 0
    finally:
        storage.release()
