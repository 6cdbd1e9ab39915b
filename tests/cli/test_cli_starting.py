"""What a command loads before it answers."""

import subprocess
import sys

import pytest

from headrace.cli.main import COMMANDS, root

HEAVY = ("pyspark", "duckdb", "sqlglot", "pandas", "numba", "headrace.engine.engine")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_is_there(name):
    command = root.get_command(None, name)
    assert command.name == name
    assert command.get_short_help_str(), "it says what it does"


@pytest.mark.parametrize("arguments", ["--help", "topics list", "groups list", "views list --storage made"])
def test_what_needs_no_engine_loads_none(tmp_path, arguments):
    """Starting costs a third of a second of processor time: a shell loop may call it."""
    (tmp_path / "made" / "epochs").mkdir(parents=True)
    code = f"""
import sys
sys.argv = ["headrace", *{arguments.split()!r}]
from headrace.cli.main import main
try:
    main()
finally:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stderr.strip().endswith("[]"), ended.stderr
