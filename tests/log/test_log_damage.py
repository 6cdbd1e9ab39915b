"""Whatever happens to one file of a log: never a wrong answer, never a bare exception."""

from __future__ import annotations

import shutil
from random import Random

import pytest
from damages import TOPICS, build, calls, damages, opened, served

from headrace.base.errors import HeadraceError

REDUNDANT = (".index", ".producers", "head", "clean.lock", "private.lock", "topic.json.copy")
"""Files whose loss is repaired; the deletion of some is no finding at all."""


def files_of(path):
    """Return up to two files of each kind and topic."""
    by_kind = {}
    for file in sorted(each for each in path.rglob("*") if each.is_file() and each.stat().st_size):
        name = file.relative_to(path)
        by_kind.setdefault((name.parts[1], name.suffix or name.name), []).append(name)
    return [name for names in by_kind.values() for name in {names[0]: None, names[-1]: None}]


def check_damage(folder, path, name, hurt, truth):
    """Damage one file of a copy, use the log, and return whether anything was noticed."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder, path)
    (path / name).unlink() if hurt is None else (path / name).write_bytes(hurt)
    topic = name.parts[1]
    noticed = []
    for step, call in {"read": None, **calls(topic), "read again": None}.items():
        try:
            if call is None:
                found, end = served(path, topic)
                wrong = {at: row for at, row in found.items() if truth[0].get(at, row) != row}
                assert not wrong, f"{step}: served, and never written: {wrong}"
                assert end >= truth[1], f"{step}: the topic ends at {end}, {truth[1]} were acknowledged"
                lost = truth[0].keys() - found.keys()
                assert not lost or step != "read", f"{step}: {len(lost)} records are missing without an error"
            else:
                with opened(path) as log:
                    result = call(log)
                noticed += result if "verify" in step else []
        except HeadraceError as error:
            noticed.append(error)
        if step == "append" and not any(isinstance(each, HeadraceError) for each in noticed):
            assert result[0].start == truth[1], f"appended at {result}, and {truth[1]} is the end"
    return noticed


def check_all(tmp_path, seed, flips):
    dice = Random(seed)  # noqa: S311 - a test that replays
    folder = tmp_path / "pristine"
    build(folder)
    truth = {name: served(folder, name) for name in TOPICS}
    kinds = set()
    for name in files_of(folder):
        raw = (folder / name).read_bytes()
        for what, hurt in damages(raw, dice, flips):
            try:
                noticed = check_damage(folder, tmp_path / "log", name, hurt, truth[name.parts[1]])
                if not name.name.endswith(REDUNDANT):
                    assert noticed, "nobody noticed"
            except Exception as error:
                raise AssertionError(f"seed {seed}, {name}, {what}: {type(error).__name__}: {error}") from error
        kinds.add(name.suffix or name.name)
    assert kinds == {".segment", ".index", ".producers", ".json", ".copy", ".keys", "head"}


def test_no_damage_of_one_file_gives_a_wrong_answer_or_a_bare_exception(tmp_path):
    check_all(tmp_path, seed=1, flips=1)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_damages_of_one_file_give_no_wrong_answer_and_no_bare_exception(tmp_path, seed):
    check_all(tmp_path, seed, flips=30)
