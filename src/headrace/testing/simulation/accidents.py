"""Accidents to what a stopped app has on disk: older copies that are put back, a lost commit, a flipped bit."""

from __future__ import annotations

import re
import shutil
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from headrace.testing.faults import POINTS, START_POINTS
from headrace.testing.simulation.vocabulary import other_step

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.testing.simulation.case import Action, Case

Part = Literal["app", "log", "both"]
PARTS: tuple[Part, ...] = ("app", "log", "both")
"""What an older copy is put back of: the app's folder beside the log that went on, the log, or both together."""
LOG = "log"
TO_PROGRAM = ("fewer", "condition", "renamed", "renamed from")
"""What may have been different before: outputs and steps were missing, a condition was another, a step had another name
(and the program says so, or not)."""
NAMED = 'named("{me}")'
_VARIES = re.compile(r"[0-9a-f]{6,}|\d+")


def keep(storage: Path, copy: Path) -> None:
    """Copy a storage with its log, as it is now; an earlier copy is forgotten."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(storage, copy)


def put_back(storage: Path, copy: Path, part: Part) -> None:
    """Replace a part of a storage by what the copy has of it."""
    for folder in (storage, copy):
        folder.mkdir(exist_ok=True)
    names = {path.name for folder in (storage, copy) for path in folder.iterdir()}
    for name in sorted(names):
        if (part == "log" and name != LOG) or (part == "app" and name == LOG):
            continue
        there, kept = storage / name, copy / name
        if there.is_dir():
            shutil.rmtree(there)
        else:
            there.unlink(missing_ok=True)
        if kept.is_dir():
            shutil.copytree(kept, there)
        elif kept.exists():
            shutil.copy2(kept, there)


def lose_newest_commit(storage: Path) -> None:
    """Remove the file of the newest commit, if there is one."""
    commits = sorted(path for path in (storage / "epochs").glob("*.json") if path.stem.isdigit())
    if commits:
        commits[-1].unlink()


def flip_a_bit(storage: Path, seed: int, where: str = "", what: str = "(?s).+") -> Path | None:
    """Flip a bit of a file whose path matches `where`, in a place that matches `what`; return the file.

    Each kind of file is as likely as another; of a kind the last one, which is the newest, is the likeliest.
    """
    dice = Random(seed)  # noqa: S311 -- replayed from its seed
    kinds: dict[str, list[Path]] = {}
    for path in sorted(storage.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = str(path.relative_to(storage))
            if re.search(where, name):
                kinds.setdefault(_VARIES.sub("#", name), []).append(path)
    if not kinds:
        return None
    paths = kinds[dice.choice(sorted(kinds))]
    path = dice.choice((paths[-1], dice.choice(paths)))
    raw = bytearray(path.read_bytes())
    places = [found.span() for found in re.finditer(what.encode(), raw)]
    if not places:
        return None
    raw[dice.randrange(*dice.choice(places))] ^= 1 << dice.randrange(8)
    path.write_bytes(raw)
    return path


# ---- which accidents a case has ----


def drawn(case: Case) -> tuple[Action, ...]:
    """Return a case's actions with one accident more, or two; the power is not cut in it. Its seed says which."""
    dice = Random(f"accidents of {case.seed}")  # noqa: S311 -- replayed from its seed
    actions: list[Action] = [("step",) if action[0] == "power" else action for action in case.actions]
    first, second = dice.choice((_restored, _reset, _changed)), dice.choice((_lost, _flipped))
    for accident in dice.choice(((first,), (first,), (second,), (first, second))):
        accident(dice, case, actions)
    return tuple(actions)


def _lost(dice: Random, _: Case, actions: list[Action]) -> None:
    actions.insert(_place(dice, actions), ("lose",))


def _flipped(dice: Random, _: Case, actions: list[Action]) -> None:
    actions.insert(_place(dice, actions), ("flip", dice.randrange(1 << 30)))


def _restored(dice: Random, _: Case, actions: list[Action]) -> None:
    kept = _place(dice, actions)
    actions.insert(kept, ("keep",))
    actions.insert(dice.randint(kept + 1, len(actions)), ("restore", dice.choice(PARTS)))


def _reset(dice: Random, case: Case, actions: list[Action]) -> None:
    steps = [step.name for step in case.steps if "{me}" in step.code]
    step = dice.choice(steps) if steps and dice.random() < 0.6 else None
    actions.insert(_place(dice, actions), ("reset", step, "again" if step else dice.choice(("again", "keep"))))


def _changed(dice: Random, case: Case, actions: list[Action]) -> None:
    kind = dice.choice(TO_PROGRAM)
    what: Any = None
    if kind == "fewer" and len(case.outputs) > 1:
        names = [output.name for output in case.outputs]
        what = tuple(dice.sample(names, dice.randint(1, len(names) - 1)))
    elif kind == "condition":
        others = [(step.name, *other) for step in case.steps if (other := other_step(dice, step.code)) is not None]
        what = dice.choice(others) if others else None
    elif kind.startswith("renamed"):
        steps = [step.name for step in case.steps if NAMED in step.code]
        what = dice.choice(steps) if steps else None
    point = dice.choice((None, None, *START_POINTS, *POINTS[-10:]))
    actions.insert(_place(dice, actions), ("lose",) if what is None else ("program", kind, what, point))


def _place(dice: Random, actions: list[Action]) -> int:
    return dice.randint(min(2, len(actions)), len(actions))
