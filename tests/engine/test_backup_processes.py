"""Backups of an app that runs as a process, taken at random moments, restore to right outputs."""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random

import pytest
from test_backup import restored_and_gone_on
from test_storage import ROWS, row

from headrace.log import Log

PROGRAM = f"""
import headrace as hr

app = hr.App("shop", storage="s", shards=1)
rows = app.stream("in", "{ROWS}")
rows.where("amount > 0").to_topic("out", key="user")
rows.group_by("user").agg(n="count(*)", total="sum(amount)").named("totals").to_view("totals")
"""
BACKUPS = 12


def headrace(folder, *arguments):
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(2))
def test_backups_of_a_running_process_at_random_moments_restore_to_right_outputs(tmp_path, seed):
    dice = Random(seed)  # noqa: S311 -- a test that replays
    (tmp_path / "app.py").write_text(PROGRAM)
    with Log(tmp_path / "s" / "log") as log:
        log.create_topic("in", ROWS, partitions=1)
        topic, number = log.topic("in"), 0
        app = headrace(tmp_path, "run", "app.py", "--local")
        try:
            saved = []
            while len(saved) < BACKUPS:
                target = tmp_path / f"saved{len(saved)}"
                making = headrace(tmp_path, "backup", "app.py", str(target)) if number else None
                while making is None or making.poll() is None:
                    topic.append([row(number)])
                    number += 1
                    time.sleep(dice.uniform(0, 0.02))
                    if making is None and (tmp_path / "s" / "views.db").exists():
                        break
                if making is not None:
                    said = making.communicate()[0]
                    assert making.returncode == 0, said
                    saved.append(target)
            assert app.poll() is None, app.communicate()[0]
        finally:
            app.terminate()
            said = app.communicate(timeout=300)[0]
        assert app.returncode == 0, said
    for at, target in enumerate(saved):
        restored_and_gone_on(target, tmp_path / f"restored{at}")
