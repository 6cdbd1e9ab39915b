"""Programs are found, loaded without running, and blamed by file and line."""

import json
import pickle
import sys
from pathlib import Path

import pytest

from headrace.base.errors import HeadraceError
from headrace.cli.programs import load_app


def refused(file):
    with pytest.raises(HeadraceError) as raised:
        load_app(file)
    return str(raised.value)


def test_a_program_is_described_and_not_run(program):
    app = load_app(program())
    assert (app.name, str(app.storage)) == ("shop", "shop")
    assert "__headrace__" not in sys.modules


@pytest.mark.parametrize("call", ["app.run()", "app.start()"])
def test_a_program_that_would_run_while_it_is_loaded_is_refused(program, call):
    text = (
        f"import headrace as hr\napp = hr.App('shop', storage='shop')\napp.stream('s', 'k int').to_view('v')\n{call}\n"
    )
    said = refused(program(text))
    assert f"the program calls {call} while it is loaded" in said
    assert "line 4." in said
    assert f'if __name__ == "__main__": {call}' in said


def test_a_program_may_import_what_lies_beside_it(program, folder):
    (folder / "shop_names_beside.py").write_text("NAME = 'beside'")
    file = program("import headrace as hr\nfrom shop_names_beside import NAME\napp = hr.App(NAME)")
    assert load_app(file).name == "beside"


def test_dataclasses_in_a_program_work_and_its_functions_travel_by_value(program):
    text = """
from __future__ import annotations
from dataclasses import dataclass
import headrace as hr

@dataclass
class Limit:
    most: int

def limited(rows):
    return rows.slice(0, Limit(2).most)

app = hr.App("travels")
app.stream("t", "a int").map_batches(limited, "a int").to_view("v")
"""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    app = load_app(program(text))
    function = next(node.function for node in app.plan().nodes if hasattr(node, "function"))
    assert pickle.loads(cloudpickle.dumps(function))(_Sliced()) == (0, 2)  # noqa: S301 -- our own


class _Sliced:
    def slice(self, start, count):
        return start, count


def test_a_missing_file_is_named_with_its_nearest(program):
    program()
    assert refused("shpo.py") == (
        '[PROGRAM_NOT_FOUND] the program shpo.py does not exist\nHint: Did you mean "shop.py"?'
    )
    assert refused(".") == "[PROGRAM_NOT_FOUND] the program . is a folder, not a program"


def test_a_program_that_raises_is_blamed_by_file_and_line(program):
    file = program("import headrace\n\ndef deep():\n    return 1 / 0\n\ndeep()\n")
    assert refused(file).splitlines()[0] == "[PROGRAM_FAILED] shop.py, line 4: ZeroDivisionError: division by zero"
    assert refused(program("x = (\n")).splitlines()[0].startswith("[PROGRAM_FAILED] ")
    assert "shop.py, line 1:" in refused(program("x = (\n"))
    assert "line 2: SystemExit: 3" in refused(program("import sys\nsys.exit(3)"))


def test_an_error_of_ours_keeps_its_condition_and_says_the_line(program):
    file = program('import headrace as hr\napp = hr.App("a")\napp.stream("t", "user string").where("usr = 1")\n')
    result = refused(file)
    assert result.startswith("[UNKNOWN_COLUMN]")
    assert "At shop.py, line 3." in result
    assert 'Did you mean "user"?' in result


def test_one_app_is_needed_or_a_choice(program):
    assert "[NO_APP] the program shop.py has no app" in refused(program("x = 1"))
    two = 'import headrace as hr\nfirst = hr.App("first")\nsecond = hr.App("second")\nalso = first\n'
    file = program(two)
    assert "[SEVERAL_APPS] the program shop.py has 2 apps: first, second, also" in refused(file)
    assert load_app(f"{file}:second").name == "second"
    result = refused(f"{file}:secnd")
    assert 'has no app "secnd"' in result
    assert 'Did you mean "second"?' in result


def test_explain_shows_text_mermaid_and_json(headrace, program):
    file = program()
    text = headrace("explain", file)
    assert text.code == 0
    assert "spent" in text.out
    assert "tumbling 1 hour" in text.out
    assert headrace("explain", file, "--mermaid").out.startswith("flowchart LR")
    plan = json.loads(headrace("explain", file, "--json").out)
    assert plan["app"] == "shop"
    assert "spent" in [step["name"] for step in plan["steps"]]


@pytest.mark.parametrize(
    "command",
    ["explain {}", "status {}", "views list --app {}", "views show spent --app {}", "connect offsets list {}"],
)
def test_what_a_program_prints_while_it_is_loaded_goes_to_standard_error(headrace, program, ran, command):
    file = Path(program())
    file.write_text(f"print('hello')\n{file.read_text()}")
    ran(file=str(file))
    result = headrace(*command.format(file).split(), "--json")
    json.loads(result.out)
    assert (result.code, result.err.splitlines()[0]) == (0, "hello")


def test_errors_are_one_text_on_standard_error_and_an_exit_code(headrace, program):
    result = headrace("explain", "none.py")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("[PROGRAM_NOT_FOUND]")
    assert "Traceback" not in result.err
    traced = headrace("explain", "none.py", "--trace")
    assert traced.code == 1
    assert "Traceback" in traced.err
    assert headrace("explain").code == 2
    misspelt = headrace("explian", program())
    assert misspelt.code == 2
    assert 'Did you mean "explain"?' in misspelt.err


@pytest.mark.parametrize(
    "command",
    ["run", "explain", "status", "reset", "demo", "topics list", "topics create", "topics describe", "topics produce",
     "topics consume", "topics delete", "views list", "views show"],
)  # fmt: skip
def test_every_command_helps_with_an_example_and_speaks_json(headrace, command):
    result = headrace(*command.split(), "--help")
    assert result.code == 0
    assert "Example:" in result.out
    assert f"headrace {command}" in result.out
    assert "--json" in result.out


LONG = "x" * 300


@pytest.mark.parametrize(
    "command",
    ["run {} --local", "status {}", "diff {}", "verify {}", "reset {}", "backup {} copy", "views list", "verify"],
)
@pytest.mark.parametrize(("place", "why"), [(LONG, "300 bytes long"), ("afile/s", "afile is no folder")])
def test_a_storage_that_cannot_be_a_folder_is_called_wrongly(headrace, program, command, place, why):
    Path("afile").touch()
    result = headrace(*command.format(program()).split(), "--storage", place)
    assert result.code == 2
    assert why in result.err
    assert LONG not in result.err


def test_a_log_that_cannot_be_a_folder_is_called_wrongly(headrace):
    for command in ("topics list", "topics create t --schema id,int"):
        result = headrace(*command.replace(",", " ").split(), "--log", LONG)
        assert result.code == 2
        assert "300 bytes long" in result.err


@pytest.mark.parametrize("command", ["run {} --local", "diff {}", "backup {} copy"])
def test_a_program_whose_storage_is_below_a_file_says_so(headrace, program, command):
    Path("afile").touch()
    file = Path(program())
    file.write_text(file.read_text().replace('storage="shop"', 'storage="afile/s"'))
    result = headrace(*command.format(file).split())
    assert result.code == 1
    assert "afile is no folder" in result.err
    assert "Hint: " in result.err


@pytest.mark.parametrize("budget", ["abc", "5 within", "-1", "5 within never", "5 within 1 parsec"])
def test_a_budget_of_restarts_that_is_none_is_called_wrongly_and_nothing_starts(headrace, program, budget):
    result = headrace("run", program(), "--local", "--restart", budget)
    assert result.code == 2
    assert "--restart" in result.err
    assert "5 within 10 minutes" in result.err
    assert "starting" not in result.err
    assert not Path("shop").exists()
