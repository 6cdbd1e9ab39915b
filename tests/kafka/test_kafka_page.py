"""The quick start of docs/kafka.md is run as it stands, on a real broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
PAGE = HOUSE / "docs" / "kafka.md"
COMMANDS = re.search(r"```console\n(\$ export .*?)```", PAGE.read_text(), re.DOTALL)[1]


@pytest.mark.prove
def test_the_quick_start_gives_what_the_page_shows(broker, tmp_path):
    (tmp_path / "examples").symlink_to(HOUSE / "examples")
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    for step in re.split(r"^\$ ", COMMANDS, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        if command.startswith("export "):
            environment["HEADRACE_TOPICS"] = broker.address
            continue
        run = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, f"{command}\n{run.stderr}"
        if "views show" in command:
            assert run.stdout == expected
        elif expected:  # how many partitions there are depends on the cores of the machine
            assert [len(line.split()) for line in run.stdout.splitlines()] == [
                len(line.split()) for line in expected.splitlines()
            ], run.stdout
