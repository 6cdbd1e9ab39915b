"""UDP, multicast, StatsD and syslog, over the sockets of this machine."""

from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_cases import WRITER, Filled, batch, for_rows, ids_of, until
from headrace.base.broker_errors import MessageTooLarge
from headrace.base.errors import InvalidArgument, InvalidPlan, UnknownColumn
from headrace.base.time import ManualClock
from headrace.connect import statsd, syslog, udp
from headrace.connect.messages import datagrams
from headrace.connect.messages.datagrams import Datagrams, receiving_socket, udp_address
from headrace.connect.udp import Gaps
from headrace.testing.connectors import COLUMNS

NOW = 1_795_000_000_000_000


@pytest.fixture
def port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def filled(tmp_path):
    return Filled(tmp_path / "log")


def send(port, *bodies, host="127.0.0.1"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for body in bodies:
            sender.sendto(body, (host, port))


def one(i):
    return json.dumps({"id": i, "text": f"t{i}"}).encode()


# ---- UDP ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("without", [False, True], ids=["many at once", "one by one"])
def test_datagrams_are_received_whole_with_their_senders(port, without, monkeypatch):
    if without:
        monkeypatch.setattr(datagrams.ctypes, "CDLL", lambda *_, **__: object())
    box = Datagrams(receiving_socket(udp_address(f"udp://127.0.0.1:{port}")))
    assert box.receive() == 0
    sent = [b"", b"a", bytes(60_000), *(b"%d" % at for at in range(600))]
    threading.Thread(target=send, args=(port, *sent)).start()
    found = []
    while len(found) < len(sent):
        count = box.receive()
        found += [bytes(each) for each in box.each(count)]
        if count and not without:
            assert all(each.startswith("127.0.0.1:") for each in box.senders(count))
    assert found == sent
    box.close()


def test_a_datagram_is_a_message_and_what_cannot_be_decoded_is_a_dead_letter(tmp_path, port):
    schema = pa.schema([*COLUMNS, ("remote", pa.string()), ("received", pa.timestamp("us", "UTC"))])
    filled = Filled(tmp_path / "log", schema)
    feed = udp.datagrams(f"udp://127.0.0.1:{port}", metadata={"remote": "remote", "received": "received"})
    with filled.by(feed) as run:
        until(lambda: run.status()["state"] == "running")
        until(lambda: send(port, one(1), b"bad") or ids_of(run.log), "it arrives")
        until(lambda: run.rows("landed.dead"))
        row = run.rows()[0]
        assert row["remote"].startswith("127.0.0.1:")
        assert row["received"] > datetime(2026, 1, 1, tzinfo=UTC)


def test_a_group_is_joined_and_missing_numbers_are_counted(tmp_path, port):
    filled = Filled(tmp_path / "log", pa.schema([("value", pa.string())]), key=())
    feed = udp.datagrams(f"udp://239.7.7.7:{port}?interface=127.0.0.1", sequence=(0, 2), format="text")
    with filled.by(feed) as run:
        until(lambda: run.status()["state"] == "running")
        sender = udp.sending_socket(udp_address(f"udp://239.7.7.7:{port}?interface=127.0.0.1"))
        for number in (65_533, 65_534, 0, 3, 2):
            sender.sendto(number.to_bytes(2, "big").replace(b"\n", b"\n") + b"x", ("239.7.7.7", port))
        sender.close()
        until(lambda: run.status().get("gaps") == 2, "65 535 and 1 are missing; 2 came late")


@given(st.lists(st.integers(0, 30), unique=True, min_size=1), st.integers(0, 255))
def test_gaps_are_the_numbers_that_are_missing_in_order(numbers, first):
    numbers = sorted(numbers)
    gaps = Gaps()
    for number in numbers:
        gaps.see("a", (first + number) % 256, 256)
    assert gaps.missing == numbers[-1] - numbers[0] + 1 - len(numbers)


def test_a_full_buffer_of_a_source_drops_and_counts_while_the_app_is_behind(tmp_path, port):
    filled = Filled(tmp_path / "log", pa.schema([("value", pa.string())]), key=())
    feed = udp.datagrams(f"udp://127.0.0.1:{port}", format="text", on_full="drop_oldest", buffer_bytes=50_000)
    with filled.topics() as topics:
        room, said, stop = [False], [], threading.Event()
        landing = topics.landing(filled.spec, feed="f", limit=1, read=lambda: 0)
        landing.has_room = lambda: room[0]
        landing.report = lambda **progress: said.append(progress)
        thread = threading.Thread(target=feed.run, args=(landing, stop))
        thread.start()
        until(lambda: send(port, *(b"%d" % at for at in range(100))) or (said and said[-1]["dropped"] > 500))
        room[0] = True
        until(lambda: topics.log.topic("landed").end_offsets()[0] > 0)
        stop.set()
        thread.join()
        landing.close()
        assert sum(topics.log.topic("landed").end_offsets().values()) < 2_000


def test_rows_are_sent_as_datagrams_and_one_that_is_too_large_is_named(port):
    box = Datagrams(receiving_socket(udp_address(f"udp://127.0.0.1:{port}")))
    sink = for_rows(udp.send(f"udp://127.0.0.1:{port}"))
    writer = sink.open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch([1, 2])]))
    found = []
    while len(found) < 2:
        found += [json.loads(bytes(each))["id"] for each in box.each(box.receive())]
    assert found == [1, 2]
    wide = pa.record_batch({"id": [1], "text": ["x" * 70_000], "_time": [0]})
    with pytest.raises(MessageTooLarge, match="70,0"):
        writer.publish(1, iter([wide]))
    writer.close()
    box.close()


@pytest.mark.parametrize("url", ["localhost:5000", "tcp://h:1", "udp://h", "udp://h:x", "udp://h:1?more=2", 7])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidPlan, match="this is no address of the form udp://host:port"):
        udp.datagrams(url)


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(InvalidPlan, match="is no place of a number"):
        udp.datagrams("udp://h:1", sequence=(0, 3))
    with pytest.raises(InvalidArgument, match="on_full='explode'"):
        statsd.metrics(on_full="explode")
    with pytest.raises(InvalidPlan, match="bufer_bytes= is not known"):
        udp.datagrams("udp://h:1", bufer_bytes=3)
    with pytest.raises(InvalidPlan, match="datagrams have no headers"):
        udp.send("udp://h:1", headers={"a": "b"})


# ---- StatsD ------------------------------------------------------------------------------------------------


def metric(name, kind, value=None, member=None, *, change=False, rate=1.0, tags=None):
    return {"name": name, "type": kind, "value": value, "member": member, "change": change, "rate": rate, "tags": tags}


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("a.b:1|c", [metric("a.b", "counter", 1.0)]),
        ("a:2|c|@0.1", [metric("a", "counter", 2.0, rate=0.1)]),
        ("a:-3.5|g", [metric("a", "gauge", -3.5, change=True)]),
        ("a:+3|g", [metric("a", "gauge", 3.0, change=True)]),
        ("a:3|g", [metric("a", "gauge", 3.0)]),
        ("a:320|ms|@0.5", [metric("a", "timer", 320.0, rate=0.5)]),
        ("a:1e3|h|#env:prod,x", [metric("a", "timer", 1000.0, tags="env:prod,x")]),
        ("a:1|d|#x|c:ab12|T1656581400", [metric("a", "timer", 1.0, tags="x")]),
        ("a:ann|s", [metric("a", "set", member="ann")]),
        ("a:+1|s", [metric("a", "set", member="+1")]),
        ("a:1:2:3|ms", [metric("a", "timer", float(n)) for n in (1, 2, 3)]),
        ("a:1|c\r\n\n  \nb:2|c\n", [metric("a", "counter", 1.0), metric("b", "counter", 2.0)]),
        ("żółć:1|c", [metric("żółć", "counter", 1.0)]),
    ],
)
def test_metrics_are_read(line, rows):
    found, dead = statsd.parsed(line.encode(), NOW)
    assert dead == []
    assert found.drop_columns(["at"]).to_pylist() == rows
    assert found["at"].cast(pa.int64()).to_pylist() == [NOW] * len(rows)


@pytest.mark.parametrize(
    "line",
    ["a", "a:1", ":1|c", "a:|c", "a:x|c", "a:1|q", "a:1|c|@0", "a:nan|g", "a:1|c|@x", "a:1e999|c", "a:1|c|@1e999"],
)
def test_what_is_no_metric_is_a_dead_letter(line):
    found, dead = statsd.parsed(f"{line}\nb:1|c".encode(), NOW)
    assert [letter.record for letter in dead] == [line]
    assert found["name"].to_pylist() == ["b"]


def test_metrics_travel_from_one_app_to_another(tmp_path, port):
    filled = Filled(tmp_path / "log", statsd.METRICS, key=())
    with filled.by(statsd.metrics(f"statsd://127.0.0.1:{port}")) as run:
        until(lambda: run.status()["state"] == "running")
        sink = statsd.send(f"statsd://127.0.0.1:{port}", name="shop.{text}.sold", value="id", type="timer", tags="text")
        writer = for_rows(sink).open(writer=WRITER, clock=ManualClock())
        odd = pa.record_batch({"id": pa.array([7, None], pa.int32()), "text": ["a|b: c", "x"], "_time": [0, 0]})
        until(lambda: writer.publish(0, iter([batch(range(300)), odd])) or len(run.rows()) >= 301)
        writer.close()
        rows = {row["name"]: (row["type"], row["value"]) for row in run.rows()}
        assert rows["shop.t17.sold"] == ("timer", 17.0)
        assert rows["shop.a_b__c.sold"] == ("timer", 7.0)
        assert len(rows) == 301


def test_a_gauge_below_zero_is_set_and_not_subtracted(port):
    """A server adds a number with a sign to the gauge that it has."""
    sink = statsd.send(f"statsd://127.0.0.1:{port}", name="{text}", value="id", tags="text")
    rows = pa.record_batch({"id": pa.array([7, -5, -2, 3, None], pa.int32()), "text": list("aabbb"), "_time": [0] * 5})
    with receiving_socket(udp_address(f"udp://127.0.0.1:{port}")) as server:
        writer = for_rows(sink).open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([rows]))
        writer.close()
        found, dead = statsd.parsed(server.recv(65_536), NOW)
    gauges = dict.fromkeys("ab", 0.0)
    for row in found.to_pylist():
        gauges[row["name"]] = row["value"] + (gauges[row["name"]] if row["change"] else 0.0)
        assert (gauges[row["name"]], row["tags"]) in [(7, "a"), (0, "a"), (-5, "a"), (0, "b"), (-2, "b"), (3, "b")]
    assert (gauges, dead) == ({"a": -5.0, "b": 3.0}, [])


def test_a_topic_with_other_columns_is_refused(tmp_path, port):
    with Filled(tmp_path / "log").by(statsd.metrics(f"statsd://127.0.0.1:{port}")) as run:
        until(run.failure)
        assert isinstance(run.failure(), UnknownColumn)
    with pytest.raises(UnknownColumn):
        for_rows(statsd.send("statsd://127.0.0.1", name="a.{b}", value="id"))
    with pytest.raises(InvalidPlan, match="cannot be the name of a metric"):
        statsd.send("statsd://127.0.0.1", name="a:b", value="id")


# ---- syslog ------------------------------------------------------------------------------------------------


def line(text):
    (row,) = syslog.parsed([text.encode()], NOW)[0].drop_columns(["received"]).to_pylist()
    return {name: value for name, value in row.items() if value is not None}


def test_messages_of_both_rfcs_are_read():
    """The examples of RFC 5424 and RFC 3164."""
    assert line("<34>1 2003-10-11T22:14:15.003Z my.example.com su - ID47 - \ufeff'su root' failed for lonvick") == {
        "at": datetime(2003, 10, 11, 22, 14, 15, 3000, tzinfo=UTC), "facility": 4, "severity": 2,
        "host": "my.example.com", "app": "su", "id": "ID47", "message": "'su root' failed for lonvick",
    }  # fmt: skip
    assert line("<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time") == {
        "at": datetime(2003, 8, 24, 12, 14, 15, 3, tzinfo=UTC), "facility": 20, "severity": 5,
        "host": "192.0.2.1", "app": "myproc", "process": "8710", "message": "%% It's time",
    }  # fmt: skip
    data = r'[exampleSDID@32473 iut="3" eventSource="a \"b\" \]"][examplePriority@32473 class="high"]'
    assert line(f"<165>1 2003-10-11T22:14:15.003Z m e - ID47 {data}")["data"] == data
    assert line("<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed\nfor lonvick") == {
        "at": datetime(2026, 10, 11, 22, 14, 15, tzinfo=UTC), "facility": 4, "severity": 2,
        "host": "mymachine", "app": "su", "process": "12", "message": "'su root' failed\nfor lonvick",
    }  # fmt: skip
    assert line("<13>Feb 29 10:00:00 h hello there")["at"] == datetime(2028, 2, 29, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "hello", "<192>1 - - - - - - x", "<1>1 yesterday h a p i - x", "<1>Foo 11 2:14 h x"]
)
def test_what_is_no_syslog_message_is_a_dead_letter(text):
    rows, dead = syslog.parsed([text.encode()], NOW)
    assert (rows.num_rows, [letter.record for letter in dead]) == (0, [text])


BODIES = st.binary(min_size=1).filter(lambda b: not b[:1].isdigit() and b"\n" not in b and not b.endswith(b"\r"))


@given(st.lists(BODIES), st.integers(1, 9), st.booleans())
def test_messages_of_tcp_are_found_however_they_arrive(bodies, size, counted):
    sent = b"".join(b"%d %s" % (len(b), b) if counted else b + b"\n" for b in bodies)
    found, rest = [], b""
    for at in range(0, len(sent), size):
        whole, rest = syslog.messages_in(rest + sent[at : at + size], ended=False)
        found += whole
    assert (found, rest) == (bodies, b"")


def connects(port):
    """Whether somebody listens; a feed that runs may not do so yet."""
    with socket.socket() as sender:
        return sender.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_messages_arrive_by_udp_and_tcp(tmp_path, port, scheme):
    filled = Filled(tmp_path / "log", syslog.LINES, key=())
    text = b"<34>1 2003-10-11T22:14:15.003Z m su - ID47 - hello"
    with filled.by(syslog.lines(f"{scheme}://127.0.0.1:{port}")) as run:
        until(lambda: run.status()["state"] == "running")
        if scheme == "udp":
            until(lambda: send(port, text, b"bad") or run.rows())
        else:
            until(lambda: connects(port), "it listens")
            with socket.create_connection(("127.0.0.1", port)) as sender:
                sender.sendall(b"%d %s%s\n" % (len(text), text, text) + text)
            until(lambda: len(run.rows()) == 3)
            with socket.create_connection(("127.0.0.1", port)) as sender:
                sender.sendall(b"bad\n")
        until(lambda: run.rows("landed.dead"))
        assert {row["message"] for row in run.rows()} == {"hello"}
