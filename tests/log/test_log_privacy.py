"""Private columns: sealed wherever they are stored, readable while their subject's key exists, null afterwards."""

import multiprocessing
import os

import pyarrow as pa
import pytest

from headrace.base.errors import (
    AppendFailed,
    CorruptBatch,
    InvalidRows,
    InvalidTopic,
    KeysMissing,
    SchemaRefused,
    TopicDeleted,
    UnknownSubject,
)
from headrace.log import Log
from headrace.log.privacy import keyfile, sealing
from headrace.log.privacy.keyfile import SLOT, KeyFile

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headrace.log", "numpy", "pyarrow.compute"])
COLUMNS = "id bigint, user string, email string, note binary, total int"
PRIVATE = {"email": "user", "note": "user"}


def user(name, n=0, **more):
    return {
        "id": n,
        "user": name,
        "email": f"{name}@secret.example",
        "note": f"note-{name}".encode(),
        "total": n,
    } | more


def emails(topic, **how):
    return [
        row["email"]
        for n in range(topic.partitions)
        for row in topic.read(n, topic.start_offsets()[n], 1000, **how).to_pylist()
    ]


def found_in(folder, *secrets):
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


@pytest.fixture
def topic(log):
    return log.create_topic("users", COLUMNS, private=PRIVATE, key="id")


# ---- what is stored, what is read ----------------------------------------------------------------------


def test_private_values_are_read_as_they_were_appended(topic, again):
    rows = [user("ann"), user("bob", 1), user("cy", 2, email=None, note=b""), user("ann", 3, email="")]
    topic.append(rows)
    for seen in (topic, again().topic("users")):
        assert seen.read(0, 0, 9).select(list(rows[0])).to_pylist() == rows
        batch = next(seen.batches(0, 1, 3, columns=["email", "_offset"]))
        assert batch.to_pylist() == [{"email": "bob@secret.example", "_offset": 1}, {"email": None, "_offset": 2}]
        assert seen.private == PRIVATE


def test_private_values_stand_in_no_file(topic, tmp_path):
    topic.append([user("ann"), user("bob", 1)])
    assert found_in(tmp_path, '"user"')
    assert not found_in(tmp_path, "secret.example", "note-ann")
    topic.forget("ann")
    assert not found_in(tmp_path, "secret.example", "note-ann")


def test_sealed_reading_gives_tokens_equal_where_subject_and_value_are(topic):
    topic.append([user("ann"), user("bob", 1, email="ann@secret.example"), user("ann", 2)])
    first, other, second = emails(topic, sealed=True)
    assert first == second != other
    assert first.startswith(f"sealed:v1:{topic.opened.meta().id}:")
    assert topic.read(0, 0, 1, sealed=True)["note"][0].as_py().startswith(b"sealed:v1:")


def test_a_topic_without_private_columns_has_no_key_file(log, tmp_path):
    log.create_topic("plain", "id bigint").append([{"id": 1}])
    assert not [*tmp_path.rglob("private*")]
    with pytest.raises(InvalidTopic, match="no private columns, so it has no keys to destroy"):
        log.topic("plain").forget("ann")


def test_a_producer_seals_too(log, topic, tmp_path):
    with log.producer() as producer:
        good, bad = (
            producer.send("users", user("ann")),
            producer.send("users", user(None, email="nobody@secret.example")),
        )
        assert good.result() == 0
        with pytest.raises(InvalidRows, match='its subject "user" is null'):
            bad.result()
    assert emails(topic) == ["ann@secret.example"]
    assert not found_in(tmp_path, "secret.example")


def test_a_retry_appends_nothing_twice(topic):
    for _ in range(2):
        topic.append([user("ann")], producer="p", sequence=1)
    assert emails(topic) == ["ann@secret.example"]


def test_a_private_value_without_a_subject_is_refused(topic):
    with pytest.raises(InvalidRows, match=r'rows\[1\] has a private value in "email", but its subject "user"'):
        topic.append([user("ann"), user(None)])
    topic.append([user(None, email=None, note=None), {"id": 4, "_deleted": True, "email": "gone@secret.example"}])
    assert emails(topic) == [None, None]


def test_tokens_are_appended_as_they_are_when_asked_to(topic):
    topic.append([user("ann")])
    copied = topic.read(0, 0, 1, sealed=True).drop_columns(["_offset", "_time", "_deleted"])
    topic.append(copied, sealed=True)
    assert emails(topic) == ["ann@secret.example"] * 2
    for wrong in ("x@secret.example", f"sealed:v1:{'0' * 32}:{'a' * 16}:aaaa"):
        with pytest.raises(InvalidRows, match=r'rows\[0\]: the column "email" of topic "users" takes sealed values'):
            topic.append([user("ann", email=wrong, note=None)], sealed=True)


# ---- forgetting ----------------------------------------------------------------------------------------


def test_a_forgotten_subject_reads_null_everywhere_at_once(topic, again):
    other = again().topic("users")
    topic.append([user("ann"), user("bob", 1), user("ann", 2)])
    assert emails(other) == ["ann@secret.example", "bob@secret.example", "ann@secret.example"]
    assert topic.forget("ann") == 1
    for seen in (topic, other, again().topic("users")):
        assert emails(seen) == [None, "bob@secret.example", None]
        assert seen.read(0, 0, 9)["note"].to_pylist() == [None, b"note-bob", None]
        assert seen.read(0, 0, 9)["total"].to_pylist() == [0, 1, 2]


def test_batches_under_way_give_null_from_the_moment_of_forgetting(topic, again):
    for n in range(3):
        topic.append([user("ann", n)])
    batches = topic.batches(0, 0, 3)
    assert next(batches)["email"].to_pylist() == ["ann@secret.example"]
    again().topic("users").forget("ann")
    assert next(batches)["email"].to_pylist() == [None]


def test_forgetting_twice_does_nothing_and_an_unknown_subject_is_an_error(topic):
    topic.append([user("ann")])
    assert [topic.forget("ann"), topic.forget("ann")] == [1, 0]
    with pytest.raises(UnknownSubject, match="never had a private value of the subject 'anne'"):
        topic.forget("anne")
    with pytest.raises(InvalidRows, match="7 is not a subject of the topic users"):
        topic.forget(7)
    with pytest.raises(InvalidTopic, match='"email" of the topic "users" is not a subject column'):
        topic.forget("ann", column="email")


def test_a_new_record_of_a_forgotten_subject_gets_a_new_key(topic, again):
    other = again().topic("users")
    topic.append([user("ann")])
    other.append([user("ann", 1)])
    topic.forget("ann")
    other.append([user("ann", 2)])
    assert emails(topic) == emails(other) == [None, None, "ann@secret.example"]
    assert other.forget("ann") == 1
    assert emails(topic) == [None] * 3


def test_two_subjects_of_one_record_are_forgotten_apart(log):
    topic = log.create_topic(
        "mail", "sender bigint, receiver bigint, subject string, answer string",
        private={"subject": "sender", "answer": "receiver"},
    )  # fmt: skip
    row = {"sender": 1, "receiver": 2, "subject": "hello", "answer": "well"}
    topic.append([row, row | {"sender": 2, "receiver": 1}])
    assert topic.forget(1, column="sender") == 1
    assert topic.read(0, 0, 9).select(["subject", "answer"]).to_pylist() == [
        {"subject": None, "answer": "well"}, {"subject": "hello", "answer": "well"},
    ]  # fmt: skip
    assert topic.forget(2) == 2
    assert topic.read(0, 0, 9)["answer"].to_pylist() == [None, "well"]


def test_the_key_is_gone_from_the_disk(topic, tmp_path):
    topic.append([user("ann"), user("bob", 1)])
    path = next(tmp_path.rglob(keyfile.FILE_NAME))
    before = path.read_bytes()
    keys = [before[at + 48 : at + 48 + 64] for at in (SLOT, 2 * SLOT)]
    topic.forget("ann")
    after = path.read_bytes()
    assert sum(key in after for key in keys) == 1
    assert len(after) == len(before)
    assert b"ann" not in before
    assert path.stat().st_mode & 0o77 == 0


def test_deleting_a_topic_destroys_its_keys(log, topic, tmp_path):
    for n in range(2):
        topic.append([user("ann", n)])
    key_file = os.open(next(tmp_path.rglob(keyfile.FILE_NAME)), os.O_RDONLY)
    batches = topic.batches(0, 0, 2)
    assert next(batches)["email"].to_pylist() == ["ann@secret.example"]
    log.delete_topic("users")
    assert not os.pread(key_file, 10_000, 0).strip(b"\0")
    os.close(key_file)
    with pytest.raises((TopicDeleted, CorruptBatch)):
        emails(topic)
    assert next(batches)["email"].to_pylist() == [None]


# ---- cleaning ------------------------------------------------------------------------------------------


def test_compaction_retention_and_the_archive_keep_working(tmp_path, clock):
    archive = tmp_path / "archive"
    archive.mkdir()
    with Log(tmp_path / "log", clock=clock, fsync=False, segment_bytes=2_000) as log:
        topic = log.create_topic(
            "users", COLUMNS, key="id", cleanup="compact", private=PRIVATE, archive=archive, archive_after="1 hour"
        )
        for n in range(60):
            topic.append([user("ann", n % 3), user("bob", 10 + n % 2)])
        topic.forget("ann")
        assert topic.compact().records_removed > 90
        clock.advance(7_200)
        assert topic.clean().segments_archived
        assert topic.verify() == []
        seen = {row["id"]: row["email"] for row in topic.read(0, 0, 1000).to_pylist()}
        assert seen == dict.fromkeys(range(3)) | dict.fromkeys((10, 11), "bob@secret.example")
        assert not found_in(tmp_path, "secret.example")
        topic.forget("bob")
        assert set(emails(topic)) == {None}
        topic.alter(retention="1 minute", archive_after=None)
        clock.advance(7_200)
        topic.clean()
        topic.append([user("cy")])
        assert emails(topic) == ["cy@secret.example"]


def test_a_schema_evolves_around_private_columns(log):
    topic = log.create_topic("a", "user int, email string", private={"email": "user"})
    topic.append([{"user": 7, "email": "x"}])
    topic.evolve("user bigint, email string, more int")
    topic.append([{"user": 7, "email": "y"}])
    assert topic.forget(7) == 1
    assert emails(topic) == [None, None]
    with pytest.raises(SchemaRefused, match='the subject column "user" cannot become'):
        topic.evolve("user decimal(38, 0), email string, more int")
    with pytest.raises(InvalidTopic, match="Private columns never change"):
        topic.alter(private=["email"])


# ---- crashes and other processes -----------------------------------------------------------------------


def test_a_crash_between_key_and_record_leaves_both_whole(topic, again, monkeypatch):
    """The key is written before the record; without the record nothing needs the key."""
    monkeypatch.setattr("headrace.log.appending.writer.Writer.append", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        topic.append([user("ann")])
    monkeypatch.undo()
    other = again().topic("users")
    other.append([user("ann"), user("bob", 1)])
    assert emails(topic) == ["ann@secret.example", "bob@secret.example"]
    assert topic.forget("ann") == 1


@pytest.mark.parametrize("left", [1, 60, SLOT - 1])
def test_a_torn_slot_at_the_end_is_cut_off(topic, again, tmp_path, left):
    topic.append([user("ann")])
    with next(tmp_path.rglob(keyfile.FILE_NAME)).open("ab") as file:
        file.write(b"x" * left)
    other = again().topic("users")
    assert emails(other) == ["ann@secret.example"]
    other.append([user("bob", 1)])
    assert emails(topic) == emails(again().topic("users")) == ["ann@secret.example", "bob@secret.example"]


def test_a_damaged_key_is_an_error_and_never_a_null(topic, again, tmp_path):
    topic.append([user("ann")])
    topic.append([user("bob", 1)])
    path = next(tmp_path.rglob(keyfile.FILE_NAME))
    raw = bytearray(path.read_bytes())
    for at in range(SLOT, 2 * SLOT, 7):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        other = again().topic("users")
        with pytest.raises(CorruptBatch, match="a value of a private column cannot be unsealed"):
            emails(other)
        assert other.read(0, 1, 1)["email"].to_pylist() == ["bob@secret.example"]
        assert [(each.partition, each.file, each.position) for each in other.verify()] == [(None, str(path), SLOT)]
    path.write_bytes(b"x" + raw[1:] + bytes(SLOT) + b"torn")
    (found,) = topic.verify()
    what = "the header of the key file is damaged, or another topic's: private columns cannot be read"
    assert str(found) == f"the topic: {what}: {path}, position 0"
    path.unlink()
    assert [each.what for each in topic.verify()] == ["the key file is missing: private columns cannot be read"]
    with pytest.raises(CorruptBatch, match=r"the key file .* is missing"):
        emails(topic)
    with pytest.raises(CorruptBatch, match="is missing"):
        topic.append([user("ann")])
    assert len(emails(topic, sealed=True)) == 2


def appending(path, name, appends, together):
    with Log(path, fsync=False) as log:
        topic = log.topic("users")
        together.wait()
        for n in range(appends):
            topic.append([user(f"{n % 40}", n), user(f"{name}-{n}", n)])


def test_processes_that_append_share_the_keys(tmp_path):
    with Log(tmp_path) as log:
        topic = log.create_topic("users", COLUMNS, private=PRIVATE, partitions=3)
        together = CONTEXT.Barrier(3)
        others = [CONTEXT.Process(target=appending, args=(tmp_path, name, 80, together)) for name in "xy"]
        for process in others:
            process.start()
        appending(tmp_path, "z", 80, together)
        for process in others:
            process.join()
            assert process.exitcode == 0
        rows = [row for n in range(3) for row in topic.read(n, 0, 10_000).to_pylist()]
        assert len(rows) == 480
        assert all(row["email"] == f"{row['user']}@secret.example" for row in rows)
        path = next(tmp_path.rglob(keyfile.FILE_NAME))
        assert path.stat().st_size == SLOT * (1 + 40 + 3 * 80)  # each subject one key, whoever made it
        assert topic.forget("7") == 1
        assert {
            row["email"] for n in range(3) for row in topic.read(n, 0, 10_000).to_pylist() if row["user"] == "7"
        } == {None}


def test_a_key_file_that_others_change_is_read_anew(tmp_path):
    """Threads of writers, forgetters and readers on handles of their own: nobody uses a key that was destroyed."""
    keyfile.create(tmp_path, "t" * 32)
    one, two = (KeyFile(tmp_path, "t" * 32, fsync=False) for _ in range(2))
    for n in range(200):
        key = one.keys_of([("user", f"{n % 5}")])["user", f"{n % 5}"]
        assert two.secrets()[key.id] == key.secret
        if n % 3 == 0:
            assert two.forget([("user", f"{n % 5}")]).destroyed == 1
            assert one.secrets()[key.id] is None
            assert two.keys_of([("user", f"{n % 5}")])["user", f"{n % 5}"].id != key.id


def test_a_key_that_another_process_has_not_synced_yet_is_synced_before_it_is_used(tmp_path, monkeypatch):
    keyfile.create(tmp_path, "t" * 32)
    one, two = KeyFile(tmp_path, "t" * 32, fsync=False), KeyFile(tmp_path, "t" * 32, fsync=True)
    synced = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    one.keys_of([("user", "ann")])
    assert synced == []
    for _ in range(2):
        two.keys_of([("user", "ann")])
        assert synced == [2 * SLOT]
    two.keys_of([("user", "bob")])
    two.keys_of([("user", "ann"), ("user", "bob")])
    assert synced == [2 * SLOT, 3 * SLOT]


def test_a_subject_with_two_keys_loses_both(tmp_path):
    """After a power loss while it was forgotten, the mark may be lost while a later key is there."""
    keyfile.create(tmp_path, "t" * 32)
    one, path = KeyFile(tmp_path, "t" * 32, fsync=False), tmp_path / keyfile.FILE_NAME
    first = one.keys_of([("user", "ann")])["user", "ann"]
    slot = path.read_bytes()[SLOT : 2 * SLOT]
    one.forget([("user", "ann")])
    second = one.keys_of([("user", "ann")])["user", "ann"]
    raw = path.read_bytes()
    path.write_bytes(raw[:SLOT] + slot + raw[2 * SLOT :])
    again = KeyFile(tmp_path, "t" * 32, fsync=False)
    assert again.secrets() == {first.id: first.secret, second.id: second.secret}
    assert again.forget([("user", "ann")]) == (1, 0)
    assert set(again.secrets().values()) == {None}


def test_a_full_disk_fails_the_append_and_leaves_the_keys_whole(topic, again, monkeypatch):
    topic.append([user("ann")])
    real = os.pwrite

    def full(fd, raw, at):
        real(fd, raw[:50], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(AppendFailed, match="the key file cannot be written: No space left on device"):
        topic.append([user("bob", 1)])
    monkeypatch.undo()
    topic.append([user("bob", 2), user("ann", 3)])
    assert emails(topic) == emails(again().topic("users"))
    assert emails(topic) == ["ann@secret.example", "bob@secret.example", "ann@secret.example"]


def forgetting(path, started, done):
    with Log(path, fsync=False) as log:
        topic = log.topic("users")
        started.wait()
        for _ in range(30):
            topic.forget("ann")
        done.set()


def test_nobody_appends_with_a_key_that_was_destroyed_before(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        topic = log.create_topic("users", COLUMNS, private=PRIVATE)
        topic.append([user("ann"), user("bob")])
        started, done = CONTEXT.Event(), CONTEXT.Event()
        process = CONTEXT.Process(target=forgetting, args=(tmp_path, started, done))
        process.start()
        started.set()
        while not done.is_set():
            topic.append([user("ann"), user("bob")])
        process.join()
        assert process.exitcode == 0
        topic.append([user("ann", 99)])
        found = topic.read(0, 0, 1_000_000)
        mails = dict.fromkeys(zip(found["user"].to_pylist(), found["email"].to_pylist(), strict=True))
        assert set(mails) <= {("ann", None), ("ann", "ann@secret.example"), ("bob", "bob@secret.example")}
        assert found["email"][-1].as_py() == "ann@secret.example"
        assert found["email"][0].as_py() is None


# ---- topics that hold sealed values of another one -----------------------------------------------------


def test_keys_of_a_log_that_is_not_there_are_missing_not_forgotten(topic, tmp_path):
    from headrace.log.privacy.subjects import Origin, secrets_of

    topic.append([user("ann")])
    batch = next(topic.batches(0, 0, 1, sealed=True))
    key = topic.opened.meta().id
    here = {key: Origin(str(tmp_path / "log"), "users", key)}
    assert sealing.unseal(batch, ["email"], lambda t: secrets_of(here, t))["email"].to_pylist() == [
        "ann@secret.example"
    ]
    for origins in ({key: Origin(str(tmp_path / "elsewhere"), "users", key)}, {}):
        with pytest.raises(KeysMissing):
            sealing.unseal(batch, ["email"], lambda t, known=origins: secrets_of(known, t))


def test_a_key_file_of_somebody_else_leaves_the_rest_readable(topic, again, monkeypatch):
    topic.append([user("ann")])
    real = os.open

    def owned(path, *how, **more):
        if str(path).endswith(keyfile.FILE_NAME):
            raise PermissionError(13, "Permission denied")
        return real(path, *how, **more)

    other = again().topic("users")
    monkeypatch.setattr("os.open", owned)
    with pytest.raises(KeysMissing, match="may not be read by this user"):
        emails(other)
    assert other.read(0, 0, 9, sealed=True)["total"].to_pylist() == [0]
    assert [batch["total"].to_pylist() for batch in other.batches(0, 0, 1, columns=["total"])] == [[0]]


# ---- what cannot be ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("private", "why"),
    [
        ({"mail": "user"}, 'the private column "mail" is not in the schema'),
        ({"email": "usr"}, 'the subject\'s column "usr" is not in the schema'),
        ({"total": "user"}, 'the private column "total" is a int'),
        ({"code": "user"}, 'the private column "code" is not null'),
        ({"user": "email"}, 'the private column "user" belongs to the key'),
        ({"email": "email"}, 'the subject\'s column "email" is private itself'),
        ({"email": "at"}, 'the subject\'s column "at" is a timestamp'),
        (["email"], "there is no subject column for the private columns"),
        ({"email": 3}, "private is {'email': 3}"),
        (3, "there is no subject column for the private columns"),
    ],
)
def test_private_columns_that_cannot_be_are_refused(log, private, why):
    with pytest.raises(InvalidTopic) as caught:
        log.create_topic(
            "a", "id bigint, user string, email string, code string not null, at timestamp, total int",
            key=["id", "user"], private=private,
        )  # fmt: skip
    assert why in str(caught.value)
    assert not log.has_topic("a")


def test_the_key_is_the_subject_where_none_is_named(log):
    topic = log.create_topic("a", "user bigint, email string", key="user", private=["email"])
    topic.append(pa.table({"user": [5], "email": ["x"]}))
    assert topic.private == {"email": "user"}
    assert topic.forget(5) == 1
    assert emails(topic) == [None]
