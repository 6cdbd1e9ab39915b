"""Every file of an app's storage has a checksum: a damaged one is repaired, or refused with what mends it."""

import json

import pytest

import headrace as hr
from headrace.base import checked
from headrace.base.errors import DamagedFile, HeadraceError
from headrace.engine.storage import Storage
from headrace.testing import Driver

ROWS = "id int, user string, amount double"


def two_lines(storage):
    """The app of two lines: a topic in, a topic out and a view."""
    app = hr.App("shop", storage=storage)
    rows = app.stream("in", ROWS)
    rows.where("amount > 0").to_topic("out", key="user")
    rows.group_by("user").agg(n="count(*)", total="sum(amount)").named("totals").to_view("totals")
    return app


def row(number):
    return {"id": number, "user": "ab"[number % 2], "amount": float(number + 1)}


def outputs(driver):
    """What anyone sees: the topic in offset order, and the view."""
    topic = driver.log.topic("out")
    rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]
    return [each["id"] for each in rows], driver.view("totals")


def expected(count):
    rows = [row(number) for number in range(count)]
    amounts = {user: [each["amount"] for each in rows if each["user"] == user] for user in "ab"}
    return list(range(count)), [{"user": u, "n": len(v), "total": sum(v)} for u, v in amounts.items()]


@pytest.fixture
def storage(tmp_path):
    """A storage that has run three epochs of two rows."""
    with Driver(two_lines(tmp_path / "s"), storage=tmp_path / "s") as driver:
        for epoch in range(3):
            driver.send("in", row(2 * epoch), row(2 * epoch + 1))
            driver.step()
    return tmp_path / "s"


def goes_on(storage, *, already=6):
    """Start the app, send two more rows, and return what anyone sees."""
    with Driver(two_lines(storage), storage=storage) as driver:
        driver.send("in", row(already), row(already + 1))
        driver.run()
        return outputs(driver)


# ---- checksums -------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_json_is_an_error_or_changes_nothing():
    data = {"offsets": {"0": 12, "1": 7}, "name": "a\u00e9", "none": None}
    raw = checked.to_text(data, indent=1).encode()
    assert json.loads(raw) == {"checksum": raw[14:22].decode(), **data}
    assert checked.from_text(raw, "f") == data
    for at in range(len(raw) * 8):
        broken = bytearray(raw)
        broken[at // 8] ^= 1 << (at % 8)
        with pytest.raises(DamagedFile, match="the file f"):
            checked.from_text(bytes(broken), "f")
    for size in range(len(raw)):
        with pytest.raises(DamagedFile, match="the file f"):
            checked.from_text(raw[:size], "f")


def test_json_without_a_checksum_is_read_as_older_versions_wrote_it():
    assert checked.from_text('{"app": "shop"}', "f") == {"app": "shop"}
    assert checked.from_text(checked.to_text({}), "f") == {}


@pytest.mark.parametrize("name", ["plan.json", "sources.json"])
def test_a_damaged_description_is_an_error_that_says_what_mends_it(storage, name):
    path = storage / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)
    with pytest.raises(DamagedFile, match=name) as error:
        Driver(two_lines(storage), storage=storage)
    assert "headrace restore" in error.value.hint
    path.unlink()  # as the hint says
    assert goes_on(storage) == expected(8)


@pytest.mark.parametrize("harm", ["lost", "a bit of its id", "emptied"])
def test_the_identity_of_an_app_is_in_its_commits_too(storage, harm):
    """With another id the last epoch would be published again after a crash between topics and views."""
    with Driver(two_lines(storage), storage=storage) as driver:
        driver.send("in", row(6), row(7))
        driver.crash(at="before_views")
    was = Storage(storage, "shop").about()
    path = storage / "app.json"
    if harm == "lost":
        path.unlink()
    elif harm == "emptied":
        path.write_text("")
    else:
        path.write_text(path.read_text().replace(was["id"], was["id"].translate(str.maketrans("0123", "1032"))))
    assert goes_on(storage, already=8) == expected(10)
    assert Storage(storage, "shop").about() == was


def test_an_app_json_that_nothing_can_repair_is_refused(storage):
    for path in storage.glob("epochs/*.json"):
        data = json.loads(path.read_text())
        data = {name: value for name, value in data.items() if name not in ("checksum", "app")}
        path.write_text(json.dumps(data))  # as older versions wrote it
    (storage / "app.json").unlink()
    with pytest.raises(HeadraceError, match=r"app\.json cannot be used"):
        Driver(two_lines(storage), storage=storage)
