"""What a topic is and what becomes of its old records, from the command line."""

import json

import pytest

from headrace.cli.values import as_bytes, sized
from headrace.log import Log

LOG = ".headrace/log"


@pytest.fixture
def users(headrace):
    """Two partitions, compacted: ann three times, bob deleted, eve once."""
    result = headrace(
        "topics", "create", "users", "--schema", "id string, n bigint, at timestamp", "--key", "id",
        "--cleanup", "compact", "--event-time", "at", "--partitions", "2", "--retention", "30 days",
        "--delete-retention", "1 hour",
    )  # fmt: skip
    assert result.code == 0, result.err
    with Log(LOG) as log:
        topic = log.topic("users")
        for n, name in enumerate(["ann", "bob", "ann", "eve", "ann"]):
            topic.append([{"id": name, "n": n, "at": f"2026-01-0{n + 1}"}])
        topic.append([{"id": "bob", "at": "2026-01-06", "_deleted": True}])
    return "users"


def consumed(headrace, topic, *options):
    result = headrace("topics", "consume", topic, *options)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_settings_are_given_shown_and_altered(headrace, users, folder):
    described = json.loads(headrace("topics", "describe", users, "--json").out)
    assert {name: described[name] for name in ("cleanup", "retention", "delete_retention", "retention_bytes")} == {
        "cleanup": "compact",
        "retention": "30 days",
        "delete_retention": "1 hour",
        "retention_bytes": None,
    }
    (folder / "old").mkdir()
    result = headrace(
        "topics", "alter", users, "--retention", "none", "--retention-bytes", "1.5GB", "--archive", folder / "old",
        "--partitions", "3", "--schema", "id string, n bigint, at timestamp, land string", "--default", "land=CH",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "retention: 30 days -> none" in result.out
    assert "retention_bytes: none -> 1500000000" in result.out
    assert "partitions: 2 -> 3" in result.out
    shown = headrace("topics", "describe", users).out
    for line in (
        "retention   1.5 GB a partition",
        "schema 1    id string, n bigint, at timestamp",
        f"archive     {folder}/old",
    ):
        assert line in shown
    assert consumed(headrace, users, "--key", "eve")[0]["land"] == "CH"
    again = headrace("topics", "alter", users, "--partitions", "3", "--json")
    assert json.loads(again.out) == {"topic": users, "changed": []}


def test_describe_draws_partitions_in_columns(headrace, users):
    table = headrace("topics", "describe", users).out.splitlines()[-3:]
    assert table[0].split() == ["partition", "start", "end", "rows", "size", "first", "last"]
    assert len({line.index(word) + len(word) for line, word in zip(table, ("rows", "", ""), strict=True) if word}) == 1
    assert [int(line.split()[0]) for line in table[1:]] == [0, 1]
    assert sum(int(line.split()[3]) for line in table[1:]) == 6


def test_compacting_keeps_the_last_record_of_each_key(headrace, users):
    result = headrace("topics", "compact", users)
    assert result.code == 0, result.err
    assert result.out.startswith("topic users: 3 records compacted away (")
    left = sorted((row["id"], row.get("n")) for row in consumed(headrace, users))
    assert left == [("ann", 4), ("bob", None), ("eve", 3)]
    done = json.loads(headrace("topics", "clean", "--json").out)
    assert [cleaned["topic"] for cleaned in done] == ["users"]
    assert headrace("topics", "clean", users).out == "topic users: nothing to do\n"


def test_verify_names_what_is_damaged_and_where(headrace, users, folder):
    headrace("topics", "create", "whole", "--schema", "a int")
    assert headrace("topics", "verify").out == f"2 topics in {LOG}: whole\n"
    path = max(folder.glob(f"{LOG}/topics/users/*/*.segment"), key=lambda file: file.stat().st_size)
    raw = bytearray(path.read_bytes())
    raw[200] ^= 4
    path.write_bytes(raw)
    result = headrace("topics", "verify", "--json")
    assert result.code == 1
    found = json.loads(result.out)
    assert (found["topics"], found["whole"]) == (["users", "whole"], False)
    (finding,) = found["findings"]
    assert finding["topic"] == "users"
    assert finding["file"].endswith(path.name)
    assert finding["position"] == 0
    assert result.err.startswith("[DAMAGED] 1 spot of the log .headrace/log is damaged, in: users")
    assert path.name in headrace("topics", "verify", users).out
    assert headrace("topics", "verify", "whole").code == 0
    assert headrace("topics", "delete", users, "--yes").code == 0


def test_records_are_picked_by_key_condition_and_place(headrace, users):
    def numbers(*options):
        return sorted(row["n"] for row in consumed(headrace, users, *options) if "n" in row)

    assert numbers("--key", "ann") == [0, 2, 4]
    assert numbers("--key", "id=bob") == [1]
    assert consumed(headrace, users, "--where", "_deleted") == [{"id": "bob", "_deleted": True}]
    assert numbers("--where", "n % 2 = 0 and upper(id) <> 'BOB'") == [0, 2, 4]
    assert numbers("--where", "at >= timestamp'2026-01-03' and _offset >= 0", "--limit", "1") != []
    assert numbers("--until", "2026-01-03") == [0, 1]
    assert numbers("--from", "2026-01-03", "--until", "2026-01-05") == [2, 3]
    assert numbers("--until", "0") == []
    assert numbers("--until", "latest", "--follow") == [0, 1, 2, 3, 4]
    assert numbers("--until", "2026-01-04 12:00", "--follow", "--partition", _partition_of("ann")) != []


def _partition_of(key):
    with Log(LOG) as log:
        topic = log.topic("users")
        for number in range(topic.partitions):
            if key in topic.read(number, 0, 100).column("id").to_pylist():
                return str(number)
    raise AssertionError(key)


WRONG = [
    (["create", "t", "--schema", "a int", "--retention", "soon"], 1, "'soon' is not a retention"),
    (["create", "t", "--schema", "a int", "--retention-bytes", "lots"], 2, "'lots' is not a number of bytes"),
    (["create", "t", "--schema", "a int", "--cleanup", "compact"], 1, "there is no key"),
    (["create", "t", "--schema", "a int", "--cleanup", "shred"], 2, "'shred' is not one of"),
    (["create", "t", "--schema", "a int", "--archive", "nowhere"], 1, "nowhere"),
    (["alter", "users"], 2, "nothing to change"),
    (["alter", "users", "--default", "a=1"], 2, "--default is for columns that --schema adds"),
    (["alter", "users", "--schema", "id string", "--default", "x=1"], 1, '--default "x=1" names no column'),
    (["alter", "users", "--schema", "id string"], 1, "[SCHEMA_REFUSED]"),
    (["alter", "users", "--partitions", "1"], 1, "none can be removed"),
    (["alter", "usres", "--partitions", "3"], 1, 'Did you mean "users"?'),
    (["compact", "usres"], 1, 'Did you mean "users"?'),
    (["compact", "plain"], 1, 'its cleanup is "delete"'),
    (["clean", "usres"], 1, 'Did you mean "users"?'),
    (["verify", "usres"], 1, 'Did you mean "users"?'),
    (["describe", "usres"], 1, 'Did you mean "users"?'),
    (["consume", "users", "--where", "m > 1"], 1, 'has no column "m"'),
    (["consume", "users", "--where", "n"], 1, "is bigint, not boolean"),
    (["consume", "users", "--where", "1 / (n - n) > 1"], 1, "[CONDITION_FAILED] --where '1 / (n - n) > 1' failed"),
    (["consume", "users", "--until", "never"], 1, "--until 'never' is not a position in a topic"),
    (["consume", "users", "--from", "start"], 1, "Give earliest, latest, an offset"),
    (["consume", "users", "--key", "x=1"], 0, ""),
    (["consume", "plain", "--key", "1"], 1, "the topic plain has no key"),
    (["consume", "pairs", "--key", "1"], 1, "names no column of the key of pairs, which is a, b"),
    (["consume", "pairs", "--key", "a=x"], 1, '--key "a=x" is not a value of type int'),
    (["consume", "users", "--partition", "7"], 1, "It has 0 to 1"),
    (["consume", "users", "--limit", "-1"], 2, "is not in the range"),
]


@pytest.mark.usefixtures("users")
@pytest.mark.parametrize(("command", "code", "error"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_bad_input_is_said(headrace, command, code, error):
    headrace("topics", "create", "plain", "--schema", "a int")
    headrace("topics", "create", "pairs", "--schema", "a int, b int", "--key", "a", "--key", "b")
    result = headrace("topics", *command)
    assert (result.code, error in result.err) == (code, True), result.err


def test_sizes_are_read_and_shown():
    assert [as_bytes(text) for text in ("7", "2 kB", "1.5GB", "3M")] == [7, 2_000, 1_500_000_000, 3_000_000]
    assert [sized(size) for size in (0, 999, 1_234, 2_500_000, 7_000_000_000_000)] == [
        "0 B", "999 B", "1.23 kB", "2.5 MB", "7 TB",
    ]  # fmt: skip


def test_lost_records_are_given_up_by_repair_after_asking(headrace, users, folder):
    assert headrace("topics", "repair", users, "--yes").out == "topic users: nothing to repair\n"
    for path in folder.glob(f"{LOG}/topics/users/*/*.segment"):
        path.write_bytes(b"")
    row = json.dumps({"id": "ann", "n": 1, "at": 1})
    refused = headrace("topics", "produce", users, stdin=row)
    assert (refused.code, refused.err.split("]")[0]) == (1, "[RECORDS_LOST")
    assert "headrace topics repair users" in refused.err
    assert headrace("topics", "repair", users).code == 1, "nobody confirms it"
    given_up = json.loads(headrace("topics", "repair", users, "--yes", "--json").out)["given_up"]
    assert given_up
    assert all(lost["first"] == 0 < lost["following"] for lost in given_up)
    assert headrace("topics", "produce", users, stdin=row).code == 0
    assert headrace("topics", "verify").code == 0
    assert [each["n"] for each in consumed(headrace, users)] == [1]


@pytest.mark.parametrize(
    "command",
    [["list"], ["describe", "t"], ["consume", "t"], ["verify"], ["clean"], ["delete", "t", "--yes"], ["produce", "t"]],
)
def test_a_mistyped_log_is_an_error_that_names_the_one_that_is_meant(headrace, folder, command):
    headrace("topics", "create", "t", "--schema", "a int", "--log", "shop/log")
    for wrong, meant in (("shop/lgo", "shop/log"), ("shop", "shop/log")):
        result = headrace("topics", *command, "--log", wrong)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"[NO_LOG] there is no log {wrong}\n")
        assert f"Did you mean --log {meant}?" in result.err
    assert not (folder / "shop/lgo").exists()


def test_a_folder_that_is_no_storage_is_an_error(headrace, folder):
    (folder / "shop/.headrace").mkdir(parents=True)
    (folder / "shop/.headrace/app.json").write_text("{}")
    result = headrace("views", "list", "--storage", "shop")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("[NO_STORAGE] there is no storage shop\n")
    assert "Did you mean --storage shop/.headrace?" in result.err


APP = """
import headrace as hr

app = hr.App("shop", storage="store", shards=3)
clicks = app.stream("clicks", "user string, at timestamp", key="user", event_time="at", partitions=2)
app.table("users", "id string, name string", key="id").to_topic("copies")
clicks.group_by("user").agg(n="count(*)").named("counts").to_topic("counts")
"""


def test_create_takes_from_the_app_what_it_declares(headrace, folder):
    (folder / "app.py").write_text(APP)
    expected = {"clicks": (2, ["user"], "at", "delete"), "users": (3, ["id"], None, "compact"),
                "counts": (5, ["user"], None, "compact")}  # fmt: skip
    for name in expected:
        more = ["--partitions", "5"] if name == "counts" else []
        result = headrace("topics", "create", name, "--app", "app.py", "--retention", "9 days", *more)
        assert result.code == 0, result.err
    with Log(folder / "store/log") as log:
        topics = {name: log.topic(name) for name in log.topics()}
        assert expected == {
            name: (topic.partitions, list(topic.key), topic.event_time, topic.cleanup) for name, topic in topics.items()
        }
        assert {topic.settings["retention"] for topic in topics.values()} == {9 * 86_400_000_000}
    again = headrace("topics", "create", "clicks", "--app", "app.py")
    assert again.err.startswith("[TOPIC_EXISTS]")
    unknown = headrace("topics", "create", "click", "--app", "app.py")
    assert unknown.code == 1
    assert 'Did you mean "clicks"?' in unknown.err
    assert headrace("topics", "create", "other").code == 2, "neither --schema nor --app"
    assert headrace("topics", "create", "copies", "--app", "app.py", "--key", "name").code == 2
