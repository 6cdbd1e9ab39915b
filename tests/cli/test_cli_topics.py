"""Records go in and out through pipes, and nothing that was accepted is lost."""

import io
import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.cli import produce
from headrace.cli.produce import Lines
from headrace.log import Log

SCHEMA = (
    "user string not null, price bigint, share double, at timestamp, tags array<string>, raw binary, cost decimal(10,2)"
)
ROW = {
    "user": "ann",
    "price": 3,
    "share": 0.5,
    "at": "2026-01-31T10:00:00Z",
    "tags": ["a", "b"],
    "raw": "AP8=",
    "cost": "1.50",
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Show no progress: on a busy machine it comes between the lines that are expected."""
    monkeypatch.setattr(produce, "SAY_SECONDS", float("inf"))


@pytest.fixture
def orders(headrace):
    result = headrace("topics", "create", "orders", "--schema", SCHEMA, "--key", "user", "--event-time", "at")
    assert result.code == 0, result.err
    return "orders"


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_is_created_listed_described_and_deleted(headrace, orders):
    result = headrace("topics", "produce", orders, stdin=lines(ROW, ROW | {"at": "2026-02-01 10:00"}))
    assert result.code == 0, result.err
    listed = json.loads(headrace("topics", "list", "--json").out)
    assert listed == [
        {
            "topic": "orders",
            "partitions": 1,
            "rows": 2,
            "bytes": listed[0]["bytes"],
            "first": "2026-01-31T10:00:00Z",
            "last": "2026-02-01T10:00:00Z",
        }
    ]
    assert listed[0]["bytes"] > 128
    assert headrace("topics", "list").out.splitlines()[1].split()[:3] == ["orders", "1", "2"]
    described = json.loads(headrace("topics", "describe", orders, "--json").out)
    span = {name: listed[0][name] for name in ("bytes", "first", "last")}
    assert described["offsets"] == [{"partition": 0, "start": 0, "end": 2, "rows": 2} | span]
    assert (described["key"], described["event_time"]) == (["user"], "at")
    assert "key         user" in headrace("topics", "describe", orders).out
    again = headrace("topics", "create", orders, "--schema", "a int")
    assert again.code == 1
    assert again.err.startswith("[TOPIC_EXISTS]")
    refused = headrace("topics", "delete", orders)
    assert refused.code == 1
    assert "destroys its 2 rows" in refused.err
    assert headrace("topics", "delete", orders, "--yes").out == "deleted topic orders and its 2 rows\n"
    assert "has no topics" in headrace("topics", "list").err


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("command", ["describe", "consume", "produce", "delete"])
def test_an_unknown_topic_is_named_with_its_nearest(headrace, command):
    result = headrace("topics", command, "ordres", stdin="")
    assert result.code == 1
    assert result.err.startswith('[UNKNOWN_TOPIC] the log ".headrace/log" has no topic "ordres"')
    assert 'Did you mean "orders"?' in result.err


@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_consume_prints_produce_reads_back(headrace, orders, form):
    second = dict.fromkeys(ROW) | {"user": 'b"o,b\n', "at": "2026-01-31T10:00:00.000001Z", "share": "nan"}
    result = headrace("topics", "produce", orders, stdin=lines(ROW, second))
    assert (result.code, result.err) == (0, "appended 2 rows to orders\n")
    out = headrace("topics", "consume", orders, "--format", form).out
    if form == "json":
        assert rows_of(out) == [ROW, second]
    result = headrace("topics", "produce", "copy", "--schema", SCHEMA, "--format", form, "--json", stdin=out)
    assert json.loads(result.out) == {"topic": "copy", "appended": 2, "bad": 0}
    assert headrace("topics", "consume", "copy", "--format", form).out == out


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("times", [1, 300])
def test_values_inside_others_are_read_back_too(headrace, form, times):
    """Infinities, bytes, times and keys that are numbers: in arrays, maps and structs."""
    schema = (
        "xs array<double>, blobs array<binary>, m map<int,array<float>>, yes map<boolean,string>, "
        "s struct<a:map<bigint,int>,b:struct<raw:binary,at:timestamp>>, plain map<string,int>"
    )
    at = datetime(2026, 1, 31, 10, tzinfo=UTC)
    row = {
        "xs": [1.0, float("inf"), None, float("-inf")],
        "blobs": [b"\xff\x00", None, b""],
        "m": {1: [float("inf")], -2: None},
        "yes": {True: "x"},
        "s": {"a": {7: 8}, "b": {"raw": b"\x01", "at": at}},
        "plain": {"1": 2},
    }
    with Log(".headrace/log") as log:
        log.create_topic("given", schema).append([row, dict.fromkeys(row)] * times)
        headrace("topics", "create", "copy", "--schema", schema)
        out = headrace("topics", "consume", "given", "--format", form).out
        result = headrace("topics", "produce", "copy", "--format", form, stdin=out)
        assert (result.code, result.err) == (0, f"appended {2 * times} rows to copy\n")
        both = [log.topic(name).read(0, 0, 2 * times).select(list(row)).to_pylist() for name in ("given", "copy")]
    assert both[0] == both[1]


def test_times_and_dates_of_any_year_are_printed(headrace):
    schema = "t timestamp, n timestamp_ntz, d date, ts array<timestamp>, s struct<m: map<string, date>>"
    assert headrace("topics", "create", "far", "--schema", schema).code == 0
    log, far = Log(".headrace/log"), 253_402_300_800_000_000
    row = {"t": [far], "n": [-(2**55)], "d": [2**22], "ts": [[0, far, None]], "s": [{"m": [("k", 2**22)]}]}
    log.topic("far").append(pa.table(row, schema=log.topic("far").schema))
    assert json.loads(headrace("topics", "consume", "far").out) == {
        "t": "+10000-01-01T00:00:00Z",
        "n": "0828-04-17T00:49:41.036032",
        "d": "+13453-08-13",
        "ts": ["1970-01-01T00:00:00Z", "+10000-01-01T00:00:00Z", None],
        "s": {"m": {"k": "+13453-08-13"}},
    }


def test_a_tombstone_goes_through_pipes(headrace, orders):
    headrace("topics", "produce", orders, stdin=lines(ROW, {"user": "ann", "_deleted": True}))
    out = headrace("topics", "consume", orders).out
    assert rows_of(out)[1] == {"user": "ann", "_deleted": True}


BAD = [
    ("{", "line 3: not JSON: "),
    ("[1]", "line 3: a JSON object is expected, not [1]"),
    ('{"user": "x", "price": "3"}', """line 3: column "price" expects bigint, got '3' (str)"""),
    ('{"user": "x", "prize": 3}', "line 3: there is no column 'prize'"),
    ('{"price": 3}', 'line 3: column "user" is null, but it was declared not null'),
    ('{"user": "x", "raw": "?"}', 'line 3: column "raw": '),
    ('{"user": "\\ud800"}', 'line 3: column "user"'),
]


@pytest.mark.parametrize(("bad", "why"), BAD)
def test_a_bad_line_is_named_and_the_lines_before_it_are_appended(headrace, orders, bad, why):
    text = lines(ROW) + "\n" + bad + "\n" + lines(ROW)
    result = headrace("topics", "produce", orders, stdin=text)
    assert result.code == 1
    assert f"[BAD_LINE] {why}" in result.err
    assert "Detail: Appended before it: 1 row." in result.err
    assert len(rows_of(headrace("topics", "consume", orders).out)) == 1
    skipping = headrace("topics", "produce", orders, "--skip-bad", stdin=text)
    assert (skipping.code, skipping.err) == (0, "appended 2 rows to orders, 1 line left out\n")
    assert len(rows_of(headrace("topics", "consume", orders).out)) == 3


def test_bad_csv_is_named_by_line(headrace, orders):
    text = "user,price,at\nann,1,2026-01-01\nbob,x,2026-01-01\ncat,2,2026-01-01,3\ndan,4,2026-01-01\n"
    result = headrace("topics", "produce", orders, "--format", "csv", stdin=text)
    assert result.err.startswith("[BAD_LINE] line 3: column \"price\": 'x' is no whole number")
    result = headrace("topics", "produce", orders, "--format", "csv", "--skip-bad", "--json", stdin=text)
    assert json.loads(result.out) == {"topic": "orders", "appended": 2, "bad": 2}
    result = headrace("topics", "produce", orders, "--format", "csv", stdin="user,prize\na,1\n")
    assert 'line 1: the header names a column "prize"' in result.err
    assert 'Did you mean "price"?' in result.err
    result = headrace("topics", "produce", orders, "--format", "csv", stdin="user,price,price\na,1,2\n")
    assert 'line 1: the header names the column "price" 2 times' in result.err


@pytest.mark.parametrize(("kind", "written"), [("bigint", "1_000"), ("double", "1_0.5")])
def test_numbers_of_csv_have_no_marks_of_python(headrace, kind, written):
    headrace("topics", "create", "t", "--schema", f"n {kind}")
    result = headrace("topics", "produce", "t", "--format", "csv", stdin=f"n\n{written}\n")
    assert f"[BAD_LINE] line 2: column \"n\": '{written}' is no" in result.err


def test_consume_starts_where_it_is_told(headrace):
    headrace("topics", "create", "t", "--schema", "n int, at timestamp", "--event-time", "at", "--partitions", "2")
    with Log(".headrace/log") as log:
        for n in range(6):
            log.topic("t").append([{"n": n, "at": f"2026-01-0{n + 1}"}], partition=n % 2)

    def numbers(*options):
        result = headrace("topics", "consume", "t", *options)
        assert result.code == 0, result.err
        return [row["n"] for row in rows_of(result.out)]

    assert numbers() == [0, 2, 4, 1, 3, 5]
    assert numbers("--limit", "2") == [0, 2]
    assert numbers("--partition", "1") == [1, 3, 5]
    assert numbers("--from", "latest") == []
    assert numbers("--from", "2") == [4, 5]
    assert numbers("--from", "99") == []
    assert numbers("--from", "2026-01-05") == [4, 5]
    row = rows_of(headrace("topics", "consume", "t", "--limit", "1", "--offsets").out)[0]
    assert row == {"n": 0, "at": "2026-01-01T00:00:00Z", "_partition": 0, "_offset": 0, "_time": "2026-01-01T00:00:00Z"}
    for wrong in (["--from", "never"], ["--partition", "7"]):
        assert headrace("topics", "consume", "t", *wrong).code == 1
    assert headrace("topics", "list", "--log", "x", "--app", "y").code == 2


def test_lines_come_as_they_are_written_however_they_are_cut():
    read, write = os.pipe()
    text = "ä\nb\n\nlast"
    with open(read, "rb") as stream:  # noqa: PTH123 -- a descriptor
        lines = Lines(stream)
        for byte in text.encode()[:3]:
            os.write(write, bytes([byte]))
        found = iter(lines)
        assert next(found) == "ä\n"
        assert lines.dry
        os.write(write, text.encode()[3:])
        assert not lines.dry
        os.close(write)
        assert list(found) == ["b\n", "\n", "last"]
    assert list(Lines(io.BufferedReader(io.BytesIO(b"\xef\xbb\xbfx\r\n")))) == ["x\r\n"]


def command(*arguments, **options):
    code = "from headrace.cli.main import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], text=True, **options)


def test_what_trickles_in_is_appended_and_followed_without_delay(orders):
    """A producer that keeps its pipe open is not waited for."""
    follow = command("topics", "consume", orders, "--follow", "--limit", "2", stdout=subprocess.PIPE)
    produce = command("topics", "produce", orders, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    guard = threading.Timer(60, lambda: (follow.kill(), produce.kill()))
    guard.start()
    with follow, produce:
        for user in ("ann", "bob"):
            produce.stdin.write(lines({"user": user, "at": 1}))
            produce.stdin.flush()
            assert json.loads(follow.stdout.readline())["user"] == user
        assert follow.wait() == 0
        produce.stdin.close()
        assert produce.wait() == 0
    guard.cancel()


def test_a_reader_that_has_seen_enough_is_no_failure(orders):
    with Log(".headrace/log") as log:
        log.topic(orders).append([{"user": "x" * 100}] * 20_000)
    with command("topics", "consume", orders, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consume:
        assert "xxx" in consume.stdout.readline()
        consume.stdout.close()
        assert (consume.wait(60), consume.stderr.read()) == (0, "")


def test_lines_that_no_reader_could_use_are_refused_and_go_to_a_file_with_their_reasons(headrace, orders, folder):
    deep = "[" * 100_000
    bad = {
        2: (deep, "nested too deeply"),
        3: ('{"user": "ann", "share": 1e400, "at": 1}', "1e400 is too large for a double"),
        4: ("{}", "a JSON object with values is expected"),
        5: ('{"user": "ann", "at": null}', 'column "at" is the event time, and has no value'),
        6: ('{"user": "ann", "price": "3", "at": 1}', 'column "price" expects bigint'),
        7: ('{"user": "ann", "tags": ' + "[" * 500 + "]" * 500 + ', "at": 1}', 'column "tags" expects'),
        8: ('{"user": "ann\udcff"', "not JSON"),
    }  # fmt: skip
    good = json.dumps(ROW)
    text = "\n".join([good, *(line for line, _ in bad.values()), good]) + "\n"
    raw = text.encode("utf-8", "surrogateescape")
    for line, reason in bad.values():
        stopped = headrace("topics", "produce", orders, stdin=line.encode("utf-8", "surrogateescape"))
        assert (stopped.code, stopped.err.split("]")[0]) == (1, "[BAD_LINE"), stopped.err[:200]
        assert reason in stopped.err
        assert "--rejects FILE" in stopped.err
    result = headrace("topics", "produce", orders, "--rejects", "rejects.jsonl", "--json", stdin=raw)
    assert json.loads(result.out) == {"topic": orders, "appended": 2, "bad": len(bad)}
    rejects = rows_of((folder / "rejects.jsonl").read_text())
    assert [row["line"] for row in rejects] == list(bad)
    for row in rejects:
        line, reason = bad[row["line"]]
        assert reason in row["reason"]
        assert row["record"] == line.encode("utf-8", "backslashreplace").decode()


def test_rejected_lines_of_csv_go_to_a_file(headrace, orders, folder):
    text = "user,price,share,at\nann,3,1e400,1\nbob,4,0.5,\n,4,0.5,1\nbob,4\nbob,4,0.5,2026-01-01\n"
    result = headrace("topics", "produce", orders, "--format", "csv", "--rejects", "bad.jsonl", stdin=text)
    assert result.err == "appended 1 row to orders, 4 lines left out\n"
    rejects = rows_of((folder / "bad.jsonl").read_text())
    assert [(row["line"], row["record"]) for row in rejects] == [
        (2, "ann,3,1e400,1"), (3, "bob,4,0.5,"), (4, ",4,0.5,1"), (5, "bob,4")
    ]  # fmt: skip


def test_a_dead_letter_is_shown_with_its_reason_and_where_its_record_is(headrace, ran):
    """What a user who sees "dead letters" in the status types next."""
    row = {"user": "ann", "price": 1, "at": None}
    file = ran([{**row, "at": "2026-01-31 10:00"}, row])
    result = headrace("topics", "consume", "orders.dead", "--app", file)
    assert result.code == 0
    (letter,) = [json.loads(line) for line in result.out.splitlines()]
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("orders", letter["partition"], 1)
    assert letter["reason"] == 'the event time "at" is null'
    assert json.loads(letter["record"]) == row
