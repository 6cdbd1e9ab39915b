"""Views as a person, a spreadsheet and a program want them."""

import csv
import io
import json


def test_views_are_listed_with_key_rows_and_columns(headrace, ran):
    file = ran()
    result = headrace("views", "list", "--app", file)
    assert [line.split()[:2] for line in result.out.splitlines()] == [
        ["view", "rows"],
        ["orders_of", "2"],
        ["spent", "2"],
    ]
    views = json.loads(headrace("views", "list", "--storage", "shop", "--json").out)
    assert views[0] == {"view": "orders_of", "rows": 2, "key": ["user"], "columns": "user string, n bigint"}


def test_a_view_is_shown_as_table_csv_and_json(headrace, ran):
    file = ran()
    result = headrace("views", "show", "spent", "--app", file)
    assert result.out.splitlines() == [
        "user  window_start         window_end           spent",
        "ann   2026-01-31 10:00:00  2026-01-31 11:00:00      8",
        "bob   2026-01-31 10:00:00  2026-01-31 11:00:00      4",
    ]
    assert result.err.startswith("view spent: 2 rows, as of epoch ")
    assert "the first 1 shown" in headrace("views", "show", "spent", "--app", file, "--limit", "1").err
    assert headrace("views", "show", "spent", "--app", file, "--limit", 10**24).out == result.out
    rows = list(csv.DictReader(io.StringIO(headrace("views", "show", "spent", "--app", file, "--csv").out)))
    assert rows[1]["spent"] == "4"
    view = json.loads(headrace("views", "show", "spent", "--app", file, "--json").out)
    assert (view["view"], view["count"], view["key"]) == ("spent", 2, ["user", "window_start", "window_end"])
    assert view["rows"][0]["window_start"] == "2026-01-31T10:00:00Z"


def test_what_is_missing_is_named(headrace, ran):
    none = headrace("views", "list")
    assert (none.code, none.err.splitlines()[0]) == (1, "[NO_STORAGE] there is no storage .headrace")
    result = headrace("views", "show", "spnt", "--app", ran())
    assert result.code == 1
    assert result.err.startswith('[UNKNOWN_VIEW] there is no view "spnt"')
    assert 'Did you mean "spent"?' in result.err
    assert headrace("views", "show", "spent", "--csv", "--json").code == 2


def test_a_view_without_rows_says_so(headrace, ran):
    result = headrace("views", "show", "spent", "--app", ran([]))
    assert (result.code, result.out.splitlines()[-1]) == (0, "(no rows yet)")


def test_a_view_of_an_app_that_never_ran_is_empty(headrace, program):
    file = program()
    result = headrace("views", "show", "spent", "--app", file)
    assert (result.code, result.out.splitlines()[-1]) == (0, "(no rows yet)")
    assert "before the first epoch" in result.err
    shown = json.loads(headrace("views", "show", "orders_of", "--app", file, "--json").out)
    assert (shown["key"], shown["count"], shown["rows"]) == (["user"], 0, [])
    assert headrace("views", "show", "orders_of", "--app", file, "--csv").out == "user,n\n"
    assert headrace("views", "list", "--app", file).code == 0
    assert headrace("views", "show", "nothing", "--app", file).code == 1
