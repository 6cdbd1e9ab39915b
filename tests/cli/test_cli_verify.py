"""`headrace verify` finds one flipped bit in every kind of file that an app owns, and says what mends it."""

import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import ViewsDamaged
from headrace.base.outside import AppDamaged
from headrace.cli.programs import load_app
from headrace.engine.recovery.verify import check, verify
from headrace.views.digest import digest
from headrace.views.sqlite import SqliteViews


def flip(path, at=None):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 if at is None else at] ^= 1
    path.write_bytes(raw)


def flip_in_view(value):
    """Flip a bit of a stored value, as a disk would: the file stays a valid database."""
    with sqlite3.connect("shop/views.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = Path("shop/views.db")
    raw = path.read_bytes()
    for at in range(len(raw)):
        if raw.startswith(value, at):
            flip(path, at + len(value) - 1)
            raw = path.read_bytes()


def test_a_whole_app_is_whole(headrace, ran):
    file = ran()
    result = headrace("verify", file)
    assert (result.code, result.out) == (0, "shop and the log shop/log: whole\n")
    assert "reading views" in result.err
    answer = json.loads(headrace("verify", "--storage", "shop", "--json").out)
    assert answer == {"storage": "shop", "log": "shop/log", "whole": True, "findings": []}


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("shop/app.json", "description"),
        ("shop/plan.json", "description"),
        ("shop/sources.json", "description"),
        ("shop/epochs/*.json", "commit"),
        ("shop/state/orders_of/*/*", 'state of step "orders_of"'),
        ("shop/log/journals/shop/*/*.lines", "journal"),
        ("shop/log/topics/orders/0/*.segment", 'topic "orders"'),
    ],
)
def test_a_flipped_bit_is_found(headrace, ran, pattern, part):
    file = ran()
    path = max(Path().glob(pattern))
    flip(path)
    result = headrace("verify", file, "--json")
    assert result.code == 1
    findings = json.loads(result.out)["findings"]
    assert {finding["part"] for finding in findings} == {part}
    assert path.name in findings[0]["file"]
    assert findings[0]["mend"]
    assert result.err.startswith("[DAMAGED] the storage shop or its log is damaged in 1 place")


def test_a_flipped_bit_in_a_view_is_found_and_what_mends_it_is_named(headrace, ran):
    file = ran()
    flip_in_view(b"bob")
    result = headrace("verify", file)
    assert result.code == 1
    assert 'view "orders_of"' in result.out
    assert "headrace verify FILE --repair" in result.out
    with pytest.raises(AppDamaged, match="damaged in") as error:
        check(load_app(file))
    assert "headrace reset FILE --step orders_of; headrace reset FILE --step spent" in error.value.hint
    assert headrace("reset", file, "--yes").code == 0
    ran()
    assert headrace("verify", file).code == 0


def test_a_damaged_view_of_a_group_is_repaired(headrace, ran):
    file = ran()
    with sqlite3.connect("shop/views.db") as db:
        db.execute("UPDATE orders_of SET n = n + 1")
    assert headrace("verify", "--repair").code == 2
    assert headrace("verify", file).code == 1
    result = headrace("verify", file, "--repair", "--json")
    assert (result.code, json.loads(result.out)["repaired"]) == (0, ["orders_of"])
    assert load_app(file).view("orders_of").to_pylist() == [{"user": "ann", "n": 2}, {"user": "bob", "n": 1}]
    assert headrace("verify", file, "--repair").out == "shop and the log shop/log: whole\n"


def test_lost_commits_are_found_and_left_to_the_start(headrace, ran):
    file = ran()
    max(Path().glob("shop/epochs/*.json")).unlink()
    result = headrace("verify", file)
    assert result.code == 1
    assert "mend: Start the app" in result.out
    check(load_app(file))
    ran()
    assert headrace("verify", file).code == 0


def test_views_whose_file_is_lost_are_not_shown_as_empty(headrace, ran):
    file = ran()
    for path in Path("shop").glob("views.db*"):
        path.unlink()
    for command in (("show", "orders_of", "--app", file), ("show", "orders_of", "--storage", "shop"), ("list",)):
        result = headrace("views", *command, *(("--app", file) if command == ("list",) else ()))
        assert result.code == 1, command
        assert result.err.startswith("[VIEWS_DAMAGED] the views in shop/views.db cannot be used: the views ")
    with pytest.raises(ViewsDamaged, match="gone"):
        load_app(file).view("orders_of")


def test_a_folder_that_is_no_storage_is_not_whole(headrace, tmp_path):
    (tmp_path / "empty").mkdir()
    result = headrace("verify", "--storage", str(tmp_path / "empty"))
    assert result.code == 1
    assert result.err.startswith("[NO_STORAGE] there is no storage ")


def test_a_storage_that_does_not_exist_is_an_error(headrace):
    result = headrace("verify", "--storage", "nowhere")
    assert result.code == 1
    assert result.err.startswith("[NO_STORAGE] there is no storage nowhere")


def test_an_output_topic_that_lacks_an_epoch_is_found(headrace, ran):
    file = ran()
    hr.Log("shop/log").delete_topic("spent_changes")
    findings = [*verify(Path("shop"), Path("shop/log"))]
    published = any("spent_changes" in finding.part for finding in findings)
    epochs = [json.loads(path.read_text()) for path in Path().glob("shop/epochs/*.json")]
    had_rows = any(staged["sink"] == "topic:spent_changes" for epoch in epochs for staged in epoch["staged"])
    assert had_rows
    assert published
    assert headrace("verify", file).code == 1


def test_an_output_topic_that_cannot_be_opened_is_named_with_all_else(headrace, ran):
    """It cannot say what was published to it; that is no reason to say nothing of the others."""
    ran()
    for segment in Path("shop/log/topics/spent_changes").glob("*/*.segment"):
        segment.unlink()
    flip(min(Path("shop/log/topics/orders").glob("*/*.segment")))
    result = headrace("verify", "--storage", "shop", "--json")
    named = {finding["part"] for finding in json.loads(result.out)["findings"]}
    assert {'topic "spent_changes"', 'topic "orders"'} <= named
    assert result.code == 1


def test_the_digest_of_a_view_counts_every_bit_of_a_float(tmp_path):
    one, other = (hr_table(value) for value in (0.0, -0.0))
    assert digest(one) != digest(other)
    assert digest(hr_table(float("nan"))) == digest(hr_table(-float("nan")))
    views = SqliteViews(tmp_path / "views.db")
    views.declare("v", one.schema, None)
    views.apply(0, {"v": one.append_column("_weight", [[3]])})
    views.apply(1, {"v": one.append_column("_weight", [[-1]])})
    assert views.damage() == {}


def hr_table(value):
    return pa.table({"x": pa.array([value], pa.float64())})
