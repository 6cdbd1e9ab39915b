"""Every file of an app's storage has a checksum: a damaged one is repaired, or refused with what mends it."""

import json
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from disturbed import AROUND_THE_COMMIT, points

import headrace as hr
from headrace.base import checked
from headrace.base.errors import DamagedFile, HeadraceError
from headrace.base.outside import EpochsLost, ResetRefused, SinkBehind
from headrace.engine.operation import running
from headrace.engine.program.reset import reset, reset_impact
from headrace.engine.recovery.journal import Journal
from headrace.engine.recovery.opening import open_engine
from headrace.engine.storage import Commit, Storage
from headrace.testing import Crash, Driver
from headrace.testing.files import Files
from headrace.testing.power import PowerCuts

ROWS = "id int, user string, amount double"


def two_lines(storage, **options):
    """The app of two lines: a topic in, a topic out and a view."""
    app = hr.App("shop", storage=storage, **options)
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


def three_epochs(storage):
    """Run the app for three epochs of two rows; return its storage."""
    with Driver(two_lines(storage), storage=storage) as driver:
        for epoch in range(3):
            driver.send("in", row(2 * epoch), row(2 * epoch + 1))
            driver.step()
    return storage


@pytest.fixture
def storage(tmp_path):
    """A storage that has run three epochs of two rows."""
    return three_epochs(tmp_path / "s")


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


# ---- lost commits, older copies --------------------------------------------------------------------------


def commits(storage):
    return sorted(storage.glob("epochs/*.json"))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lost_commits_are_recovered_where_their_state_is_whole(storage, count):
    for path in commits(storage)[-count:]:
        path.unlink()
    assert goes_on(storage) == expected(8)
    assert Storage(storage, "shop").last_epoch() == 3


def test_a_damaged_newest_commit_is_recovered(storage):
    path = commits(storage)[-1]
    raw = bytearray(path.read_bytes())
    raw[raw.index(b'"offsets"') + 20] ^= 1
    path.write_bytes(raw)
    assert goes_on(storage) == expected(8)


def test_a_storage_restored_from_an_older_copy_runs_the_lost_epochs_again(storage, tmp_path):
    """Their rows are in the output topic already, and not in the view: nothing is missing, nothing twice."""
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    with Driver(two_lines(storage), storage=storage) as driver:
        for number in range(6, 12):
            driver.send("in", row(number))
            driver.step(limit=1)
    restore(tmp_path / "copy", storage)
    assert goes_on(storage, already=12) == expected(14)
    assert Storage(storage, "shop").last_epoch() == 9
    assert goes_on(storage, already=14) == expected(16)


def restore(copy, storage):
    for entry in list(storage.iterdir()):
        if entry.name != "log":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(copy, storage, dirs_exist_ok=True)


def test_a_lost_epoch_runs_again_over_the_same_ranges_though_more_has_arrived(tmp_path):
    """Cut anew it would read more rows, and publishing them would be dropped as a repetition."""
    storage = tmp_path / "s"
    with Driver(two_lines(storage), storage=storage) as driver:
        driver.send("in", row(0), row(1))
        driver.step()
        shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
        driver.send("in", row(2), row(3))
        driver.step()
        driver.send("in", row(4), row(5))
    restore(tmp_path / "copy", storage)
    assert goes_on(storage) == expected(8)


@pytest.mark.parametrize("point", points(*AROUND_THE_COMMIT))
def test_a_crash_while_lost_epochs_run_again_leaves_no_trace(storage, tmp_path, point):
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    with Driver(two_lines(storage), storage=storage) as driver:
        for number in range(6, 9):
            driver.send("in", row(number))
            driver.step()
    restore(tmp_path / "copy", storage)
    settings = running.settings(two_lines(storage), shards=1)
    for after in range(3):
        reached = Counted(point, after)
        with suppress(Crash):
            open_engine(two_lines(storage).plan(), replace(settings, sync=False, fault=reached)).close()
    assert goes_on(storage, already=9) == expected(11)


class Counted:
    """Dies when a point is reached for the n-th time."""

    def __init__(self, point, after):
        self.point, self.left = point, after

    def __call__(self, point):
        if point == self.point:
            self.left -= 1
            if self.left < 0:
                raise Crash(point)


def test_a_lost_epoch_without_a_journal_is_refused(storage):
    """The views say that it happened, and nobody knows what it read."""
    shutil.rmtree(storage / "log" / "journals")
    commits(storage)[-1].unlink()
    before = {path: path.read_bytes() for path in commits(storage)}
    with pytest.raises(EpochsLost, match="ends at epoch 1, and epochs up to 2 were published") as error:
        Driver(two_lines(storage), storage=storage)
    assert "headrace reset FILE" in error.value.hint
    assert {path: path.read_bytes() for path in commits(storage)} == before


def test_lost_epochs_of_another_program_are_refused(storage, tmp_path):
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    changed = two_lines(storage)
    changed.stream("in2", ROWS).group_by("id").agg(n="count(*)").to_view("more")
    with Driver(changed, storage=storage) as driver:
        driver.send("in", row(6))
        driver.step()
    restore(tmp_path / "copy", storage)
    with pytest.raises(EpochsLost, match="another version of the program"):
        Driver(two_lines(storage), storage=storage)


def test_lost_epochs_whose_records_are_gone_are_refused(storage, tmp_path):
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    log = hr.Log(storage / "log", segment_bytes=1, fsync=False)
    with Driver(two_lines(storage), storage=storage) as driver:
        for number in range(6, 9):
            log.topic("in").append([row(number)])
            driver.step()
    log.topic("in").alter(retention_bytes=1)
    log.topic("in").clean()
    assert log.topic("in").start_offsets()[0] > 6
    restore(tmp_path / "copy", storage)
    with pytest.raises(EpochsLost, match="the records of in that they read are gone"):
        Driver(two_lines(storage), storage=storage)


def test_lost_epochs_that_read_other_records_are_refused(storage, tmp_path):
    """The app is restored, and so is its input topic, which has grown past what the lost epochs read of it."""
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    shutil.copytree(storage / "log/topics/in", tmp_path / "in")
    with Driver(two_lines(storage), storage=storage) as driver:
        for number in range(6, 9):
            driver.send("in", row(number))
            driver.step()
    restore(tmp_path / "copy", storage)
    shutil.rmtree(storage / "log/topics/in")
    (tmp_path / "in").rename(storage / "log/topics/in")
    with hr.Log(storage / "log", fsync=False) as log:
        for number in range(16, 22):
            log.topic("in").append([row(number)])
    with pytest.raises(EpochsLost, match="in has other records than those that they read"):
        Driver(two_lines(storage), storage=storage)


@pytest.mark.parametrize("harm", ["lost", "restored from an older copy"])
def test_views_that_lack_an_epoch_are_refused(storage, harm, tmp_path):
    copy = tmp_path / "views.db"
    shutil.copy(storage / "views.db", copy)
    with Driver(two_lines(storage), storage=storage) as driver:
        driver.send("in", row(6))
        driver.step()
    for path in storage.glob("views.db*"):
        path.unlink()
    if harm != "lost":
        shutil.copy(copy, storage / "views.db")
    with pytest.raises(SinkBehind, match="epoch 3 was published to it"):
        Driver(two_lines(storage), storage=storage)


def test_a_torn_line_at_the_end_of_the_journal_does_no_harm(storage):
    (path,) = storage.glob("log/journals/shop/*/*.lines")
    path.write_bytes(path.read_bytes()[:-40])  # as a power cut may leave it
    assert goes_on(storage) == expected(8)
    assert not [*Journal(storage / "log", "shop", path.parent.name).damaged()]
    commits(storage)[-1].unlink()
    assert goes_on(storage, already=8) == expected(10)


def test_a_disk_that_is_full_in_the_middle_of_a_line_of_the_journal_takes_no_line_after_it(tmp_path):
    """A disk with room for a part of it takes that part, and says nothing."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        journal, ballast = Journal(disk, "shop", "1"), disk / "ballast"
        journal.append(Commit(epoch=0))
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        epoch = 1
        with suppress(OSError):
            for epoch in range(1, 10_000):
                journal.append(Commit(epoch=epoch))
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                journal.append(Commit(epoch=epoch))
        ballast.unlink()
        for later in range(epoch, epoch + 3):
            journal.append(Commit(epoch=later))
        journal.close()
        assert [*Journal(disk, "shop", "1").entries(0)] == [*range(1, epoch + 3)]
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("where", ["log", "kafka"])
def test_a_new_storage_beside_topics_that_know_the_app_is_told(tmp_path, caplog, where, request):
    """Its folder may be lost, or be another one by mistake: the output has everything twice."""
    topics = f"log:{tmp_path}/log" if where == "log" else request.getfixturevalue("broker").address
    app = two_lines(tmp_path / "first", topics=topics)
    with Driver(app, storage=tmp_path / "first") as driver:
        driver.send("in", row(0), row(1))
        driver.run()
    assert "is new" not in caplog.text
    shutil.rmtree(tmp_path / "first")
    with Driver(app, storage=tmp_path / "first") as driver:
        driver.run()
        assert sorted(each["id"] for each in driver.read("out")) == [0, 0, 1, 1]
    told = f'{tmp_path / "first"} of the app "shop" is new, but another one of it has published to: '
    assert told in caplog.text
    assert "out;" in caplog.text
    caplog.clear()
    with Driver(app, storage=tmp_path / "first") as driver:
        driver.run()
    assert "is new" not in caplog.text


def test_without_a_journal_and_views_the_output_topics_know_a_lost_epoch(storage):
    shutil.rmtree(storage / "log" / "journals")
    commits(storage)[-1].unlink()
    for path in storage.glob("views.db*"):
        path.unlink()
    with pytest.raises(EpochsLost, match="epochs up to 2 were published"):
        Driver(two_lines(storage), storage=storage)


@pytest.mark.parametrize("journal", ["a journal", "no journal", "neither journal nor output topics"])
@pytest.mark.parametrize("lost", ["a commit", "epochs"])
def test_a_step_is_not_reset_while_epochs_are_lost_and_can_be_once_they_are_recovered(tmp_path, lost, journal):
    """A reset would take from the lost epochs what they need to be recovered, or to run again."""
    storage = tmp_path / "s"
    with Driver(two_lines(storage), storage=storage) as driver:
        for number in range(6):
            driver.send("in", row(number))
            driver.step()
            if number == 3:
                shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log", "views.db*"))
    if lost == "a commit":
        commits(storage)[-1].unlink()
    else:
        for name in ("epochs", "state"):
            shutil.rmtree(storage / name)
            (tmp_path / "copy" / name).rename(storage / name)
    shutil.copytree(storage / "log", tmp_path / "log")
    if journal != "a journal":
        shutil.rmtree(storage / "log/journals")
    if journal == "neither journal nor output topics":
        shutil.rmtree(storage / "log/topics/out")
    kept = {path: path.read_bytes() for path in sorted(storage.glob("epochs/*.json"))}
    for attempt in (reset_impact, reset):
        with pytest.raises(ResetRefused, match="epochs up to 5 were published") as error:
            attempt(two_lines(storage).plan(), storage, "totals")
        assert "Start the app once" in error.value.hint
    assert {path: path.read_bytes() for path in sorted(storage.glob("epochs/*.json"))} == kept
    shutil.rmtree(storage / "log")
    (tmp_path / "log").rename(storage / "log")
    Driver(two_lines(storage), storage=storage).close()
    reset(two_lines(storage).plan(), storage, "totals")
    assert goes_on(storage) == expected(8)


# ---- power cuts ------------------------------------------------------------------------------------------


def test_staged_rows_are_removed_only_after_their_renaming_is_durable(tmp_path):
    """A power cut may undo the renaming and keep the removal: the epoch would pass for one without its rows."""
    with Driver(two_lines(tmp_path / "s"), storage=tmp_path / "s") as driver:
        renamed = []
        for epoch in range(3):
            driver.send("in", row(epoch))
            driver.step()
            (folder,) = [path for path in (tmp_path / "s" / "epochs").iterdir() if path.is_dir()]
            assert folder.name.startswith(f".{epoch:012d}.")
            assert list(folder.iterdir())
            renamed.append(folder)
        assert not any(folder.exists() for folder in renamed[:-1])
    with Driver(two_lines(tmp_path / "s"), storage=tmp_path / "s") as driver:
        assert not [path for path in (tmp_path / "s" / "epochs").iterdir() if path.is_dir()]
        assert outputs(driver) == expected_of(3)


def expected_of(count):
    topic, view = expected(count)
    return topic, [each for each in view if each["n"]]


# ---- on Spark --------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_storage_restored_from_an_older_copy_goes_on_on_spark(spark, storage, tmp_path):
    """The lost epochs run again in the driver's process, then Spark goes on with a checkpoint of its own."""
    with two_lines(storage).start(spark) as running:
        hr.Log(storage / "log").topic("in").append([row(6)])
        running.await_caught_up(300)
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    with two_lines(storage).start(spark) as running:
        for number in range(7, 10):
            hr.Log(storage / "log").topic("in").append([row(number)])
            running.await_caught_up(300)
    restore(tmp_path / "copy", storage)
    with two_lines(storage).start(spark) as running:
        hr.Log(storage / "log").topic("in").append([row(10), row(11)])
        running.await_caught_up(300)
    with Driver(two_lines(storage), storage=storage) as driver:
        assert outputs(driver) == expected(12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", [None, "totals"])
def test_a_reset_that_is_done_survives_a_power_cut(storage, tmp_path, seed, step):
    """Else the app's id was new and its commits the old ones (OUTPUT_LOST), or the reset was done once more later."""
    files = Files(tmp_path)
    power = PowerCuts(files)
    with files.watched():
        reset(two_lines(storage).plan(), storage, step, outputs="again")
        power.cut(0, Random(seed), tmp_path.with_name(f"{tmp_path.name}-left"))  # noqa: S311 -- replayed
        with pytest.raises(Crash):
            (tmp_path / "next").mkdir()
    left = tmp_path.with_name(f"{tmp_path.name}-left") / storage.name
    there = {"reset.json", "epochs", "state", "plan.json"} & {path.name for path in left.iterdir()}
    assert there == (set() if step is None else {"epochs", "state", "plan.json"})
    ids, view = goes_on(left)
    assert (ids[-8:], view) == expected(8)
