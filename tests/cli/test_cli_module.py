"""`python -m headrace` is the same command."""

import subprocess
import sys


def test_the_package_can_be_run(tmp_path):
    run = [sys.executable, "-m", "headrace", "topics", "list", "--json"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
