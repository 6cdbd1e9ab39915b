"""Whatever happens to one file of an app's storage: repaired, or refused by name, and never a wrong output."""

from __future__ import annotations

import shutil
from random import Random

import pytest
from test_storage import expected, outputs, row, two_lines

import headrace as hr
from headrace.base.errors import HeadraceError
from headrace.base.outside import FeedFailed
from headrace.connect import files
from headrace.engine.operation.status import status
from headrace.engine.recovery.verify import check, verify
from headrace.engine.storage import Storage
from headrace.testing import Driver

SENT = 8
HARMLESS = ("lock", "run.json", "lease", "older commit", "journal")
"""What a start does not need; a damaged journal is found by `verify`, and needed only where commits are lost."""


def build(storage, point):
    """Run four epochs, the last one up to a point, so that its rows are staged; None: to its end."""
    with Driver(two_lines(storage), storage=storage) as driver:
        for epoch in range(SENT // 2):
            driver.send("in", row(2 * epoch), row(2 * epoch + 1))
            if point is None or epoch < SENT // 2 - 1:
                driver.step()
        if point is not None:
            driver.crash(at=point)
    Storage(storage, "shop").write_json("run.json", {"state": "running", "carrier": "in-process", "restarts": 1})


def kind(name):
    """Return what a file of the storage is, None for the log's own."""
    parts = name.parts
    if parts[0] == "log":
        return "journal" if parts[1] == "journals" else None
    if parts[0] == "epochs":
        return "staged rows" if len(parts) > 2 else "commit"
    return parts[0]


def files_of(storage):
    """Return the newest file of each kind (of state and staged rows all of the last epoch), and an older commit."""
    found = {}
    for path in sorted(each for each in storage.rglob("*") if each.is_file()):
        name = path.relative_to(storage)
        what = kind(name)
        if what == "commit" and what in found:
            found["older commit"] = found[what]
        if what == "staged rows" or what in ("state", "lease"):
            found[f"{what}: {path.name.split('-')[0] if what == 'state' else path.name}"] = name
        elif what is not None:
            found[what] = name
    return found


def harms(raw, dice, flips):
    """Yield (what, content) for damages of a file; None: it is deleted."""
    for _ in range(flips if raw else 0):
        at, bit = dice.randrange(len(raw)), 1 << dice.randrange(8)
        yield f"bit {bit} of byte {at}", raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]
    yield "cut", raw[: len(raw) // 2]
    yield "deleted", None
    if flips > 1:
        yield "emptied", b""
        yield "its last byte cut", raw[:-1]
        yield "invalid UTF-8", b"\xff\xfe" + raw[2:]
        yield "no object", b"[]"


def goes_on(storage):
    with Driver(two_lines(storage), storage=storage) as driver:
        for number in range(driver.log.topic("in").end_offsets()[0], SENT + 2):  # an earlier try may have sent them
            driver.send("in", row(number))
        driver.run()
        return outputs(driver)


def check_harm(pristine, storage, name, hurt):
    """Damage one file of a copy and use the app: it is right, or refused, and right again with the file as it was."""
    shutil.rmtree(storage, ignore_errors=True)
    shutil.copytree(pristine, storage)
    path = storage / name
    path.unlink() if hurt is None else path.write_bytes(hurt)
    found = [*verify(storage, storage / "log")]
    app, refused = two_lines(storage), None
    for look in (lambda: status(app), lambda: app.view("totals")):
        try:
            look()
        except HeadraceError as error:
            refused = error
    try:
        if found and name.name == "views.db":
            check(app)
        seen = goes_on(storage)
    except HeadraceError as error:
        refused = error
        path.write_bytes((pristine / name).read_bytes())
        for beside in storage.glob("views.db-*"):
            beside.unlink()
        seen = goes_on(storage)
    assert refused is None or refused.hint, f"nothing says what mends it: {refused}"
    assert seen == expected(SENT + 2), f"found {found}, refused {refused}"
    return bool(found) or refused is not None


def check_all(tmp_path, point, seed, flips):
    dice = Random(seed)  # noqa: S311 -- a test that replays
    pristine = tmp_path / "pristine"
    build(pristine, point)
    files = files_of(pristine)
    last = Storage(pristine, "shop").read_commit(SENT // 2 - 1)
    needed = {head.file for by_shard in last.heads.values() for head in by_shard.values()}
    needed |= {each.file for each in last.staged} if point is not None else set()
    unneeded = {what for what, name in files.items() if what[:5] in ("state", "stage") and name.name not in needed}
    for what, name in files.items():
        raw = (pristine / name).read_bytes()
        for how, hurt in harms(raw, dice, flips):
            try:
                noticed = check_harm(pristine, tmp_path / "s", name, hurt)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {name}, {how}: {type(error).__name__}: {error}") from error
            unknown = what == "commit" and hurt is None and point == "after_commit"  # nobody has heard of the epoch
            if not what.startswith(HARMLESS) and what not in unneeded and name.suffix != ".db" and not unknown:
                assert noticed, f"seed {seed}, {name}, {how}: nobody noticed"
    return set(files)


@pytest.mark.parametrize("point", [pytest.param(None, marks=pytest.mark.prove), "before_views"])
def test_no_damage_of_one_file_gives_a_wrong_output_or_a_bare_exception(tmp_path, point):
    kinds = check_all(tmp_path, point, seed=1, flips=1)
    assert {"app.json", "plan.json", "sources.json", "run.json", "lock", "commit", "views.db", "journal"} <= kinds
    assert any(each.startswith("state") for each in kinds)
    assert point is None or any(each.startswith("staged rows") for each in kinds)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("point", [None, "after_commit", "before_views"])
def test_many_damages_of_one_file_give_no_wrong_output_and_no_bare_exception(tmp_path, point, seed):
    check_all(tmp_path, point, seed, flips=30)


# ---- feeds -----------------------------------------------------------------------------------------------


def fed(storage, lines):
    """Run an app with a feed until all lines are counted; return how often each of them is."""
    (storage.parents[1] / "lines").write_text("".join(f'{{"id": {n}}}\n' for n in range(lines)))
    app = hr.App("fed", storage=storage, shards=1)
    rows = app.stream("t", "id int", source=files.lines(storage.parents[1] / "lines", follow=False))
    rows.group_by("id").agg(n="count(*)").to_view("counts")
    with app.start(carrier="in-process") as running:
        running.await_caught_up(timeout=300)
    return {each["id"]: each["n"] for each in app.view("counts").to_pylist()}


def check_landing(tmp_path, seed, flips):
    """Damage the file with a feed's position: it is found, refused, and nothing is landed twice or left out."""
    dice, name = Random(seed), "log/landings/t"  # noqa: S311 -- a test that replays
    pristine, storage = tmp_path / "pristine/s", tmp_path / "hurt/s"
    pristine.parent.mkdir()
    assert fed(pristine, 3) == dict.fromkeys(range(3), 1)
    raw = (pristine / name).read_bytes()
    for how, hurt in harms(raw, dice, flips):
        shutil.rmtree(storage.parent, ignore_errors=True)
        shutil.copytree(pristine.parent, storage.parent)
        path = storage / name
        path.unlink() if hurt is None else path.write_bytes(hurt)
        (found,) = verify(storage, storage / "log")
        assert (found.part, found.file) == ('the position of the feed of "t"', str(path)), how
        assert "Restore it" in found.mend
        if hurt is not None:
            with pytest.raises(FeedFailed, match="landings/t cannot be used") as error:
                fed(storage, 5)
            assert "Restore it from a copy" in str(error.value)
        path.write_bytes(raw)
        assert fed(storage, 5) == dict.fromkeys(range(5), 1), how


def test_no_damage_of_a_feeds_position_lands_a_record_twice(tmp_path):
    check_landing(tmp_path, seed=1, flips=1)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_damages_of_a_feeds_position_land_no_record_twice(tmp_path, seed):
    check_landing(tmp_path, seed, flips=30)
