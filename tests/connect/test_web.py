"""The web as a client: answers that are asked for, server-sent events, WebSocket; each against a real server."""

from __future__ import annotations

from email.utils import format_datetime

import pyarrow as pa
import pytest

from broker_cases import WRITER, BrokerCases, Filled, Gate, batch, bodies, for_rows, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import QueueMissing
from headrace.base.errors import InvalidPlan, InvalidTime
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock, SystemClock, as_datetime
from headrace.connect import json_spans, web
from headrace.connect.web import polling
from headrace.connect.web.event_stream import EventStream
from headrace.testing.connectors import COLUMNS
from web_servers import TOKEN, WebServer, json_answer, later


@pytest.fixture
def server():
    with WebServer() as server:
        yield server


@pytest.fixture
def filled(tmp_path):
    return Filled(tmp_path / "log")


class Served:
    """A server behind a gate."""

    exactly_once, has_ids = True, False

    def __init__(self, server):
        self.server, self.gate = server, Gate(server.port)

    def url(self, path):
        return self.server.url(path, port=self.gate.port)

    def add(self, records, ids=None):
        del ids
        self.server.add(records)

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def refused(self, secret):
        return web.poll(self.url("/login"), token=f"not-{secret}")

    def missing(self):
        return web.events(self.url("/nothing?secret=1"))


class Polled(Served):
    """Pages by a cursor."""

    def feed(self, **options):
        url = self.url("/page?since={cursor}")
        return web.poll(url, every="50 ms", records="data.items", cursor="next", start="0", **options)


class Streamed(Served):
    """Server-sent events."""

    def feed(self, **options):
        return web.events(self.url("/events"), **options)


class WebCases(BrokerCases):
    """The cases of brokers that a feed of the web has."""

    test_a_missing_place_to_send_to_is_named_with_the_next_move = None
    test_a_kill_in_the_middle_of_sending_gives_repetitions_the_same_ids = None
    test_a_broker_that_is_down_is_unavailable_to_a_sink_and_gets_the_epoch_later = None
    test_a_message_with_an_id_that_was_landed_is_dropped_and_counted = None

    @pytest.mark.prove
    def test_a_message_of_10_mb_is_landed(self, broker, filled):
        super().test_a_message_of_10_mb_is_landed(broker, filled)

    @pytest.mark.prove
    @pytest.mark.parametrize("point", ["after_landing", "before_landing"])
    def test_a_kill_before_or_after_the_fsync_loses_nothing(self, broker, filled, tmp_path, point):
        super().test_a_kill_before_or_after_the_fsync_loses_nothing(broker, filled, tmp_path, point)

    @pytest.mark.prove
    def test_100_000_messages_with_ten_kills(self, broker, tmp_path):
        kills_and_restarts(broker, None, tmp_path, messages=100_000, kills=10, restarts=0)


class TestPolled(WebCases):
    """Answers to a request that is repeated."""

    test_a_message_that_cannot_be_decoded_is_a_dead_letter_and_stops_nothing = None  # an answer is JSON or not

    @pytest.fixture
    def broker(self, server):
        served = Polled(server)
        yield served
        served.gate.shut()


class TestStreamed(WebCases):
    """Server-sent events."""

    test_a_wrong_password_is_named_and_not_shown = None  # as for answers
    test_what_is_missing_is_named_with_the_next_move = None

    @pytest.fixture
    def broker(self, server):
        served = Streamed(server)
        yield served
        served.gate.shut()


# ---- answers -----------------------------------------------------------------------------------------------


def test_an_answer_that_did_not_change_is_not_landed_again(server, filled):
    server.add(bodies([0, 1]))
    with filled.by(web.poll(server.url("/list"), every="20 ms")) as run:
        run.has([0, 1])
        until(lambda: len(server.asked) > 4)
        assert server.asked[-1][1]["If-None-Match"] == '"2"'
    with filled.by(web.poll(server.url("/list"), every="20 ms", record_id="id")) as run:
        server.add(bodies([2]))
        run.has([0, 1, 2])
        assert run.status()["rows"] == 3, "without ids these were landed as they came"
    assert ids_of_sorted(filled) == [0, 0, 1, 1, 2], "the first run landed them without ids"


def ids_of_sorted(filled):
    return sorted(filled.ids())


def test_records_with_ids_are_landed_once_from_answers_that_overlap(server, filled):
    server.add(bodies([0, 1]))
    feed = web.poll(server.url("/list"), every="20 ms", record_id="id")
    with filled.by(feed) as run:
        run.has([0, 1])
        server.add(bodies([2]))
        run.has([0, 1, 2])
    server.answers.append(json_answer("[" + b",".join(bodies([2, 3])).decode() + "]", ETag='"x"'))
    with filled.by(feed) as run:
        run.has([0, 1, 2, 3])
    assert ids_of_sorted(filled) == [0, 1, 2, 3]


def test_pages_are_followed_and_the_last_one_is_asked_again(server, filled):
    server.add(bodies(range(6)))
    feed = web.poll(server.url("/linked"), every="20 ms", record_id="id")
    with filled.by(feed) as run:
        run.has(range(6))
    server.add(bodies(range(6, 9)))
    server.asked.clear()
    with filled.by(feed) as run:
        run.has(range(9))
    assert server.asked[0][0] == "/linked?page=2", "it goes on where it was"
    assert ids_of_sorted(filled) == list(range(9))


@pytest.mark.parametrize("path", ["/linked", "/linked?tagged"])
def test_a_page_that_gets_a_next_one_is_not_landed_again(server, filled, path):
    """Whether the server says again what is on it, or that this did not change."""
    server.add(bodies(range(2)))
    with filled.by(web.poll(server.url(path), every="20 ms")) as run:
        run.has(range(2))
        server.add(bodies(range(2, 5)))
        run.has(range(5))
    assert filled.ids() == list(range(5))


def test_a_server_that_says_later_is_asked_later(server, filled):
    moment = format_datetime(as_datetime(SystemClock().now() - 1_000_000), usegmt=True)
    server.answers += [later(429, **{"Retry-After": "0"}), later(503, **{"Retry-After": moment}), later(503)]
    server.add([*bodies([0]), b'{"id": "x"}'])
    with filled.by(web.poll(server.url("/list"), every="1 hour")) as run:
        until(lambda: run.status()["state"] == "retrying", "without Retry-After it is a failure that may pass")
        assert "answers 503" in run.status()["error"]
        run.has([0])
        until(lambda: run.rows("landed.dead"))
        assert [letter["record"] for letter in run.rows("landed.dead")] == ['{"id": "x"}']
    assert polling._retry_after("7200") == 3_600.0
    assert polling._retry_after("soon") is None


def test_a_page_of_another_server_and_what_is_no_json_are_not_taken(server, filled):
    server.answers.append(json_answer("[]", Link='<http://localhost:1/x>; rel="next"'))
    with filled.by(web.poll(server.url("/list"), every="20 ms")) as run:
        until(run.failure)
        assert "another server: http://localhost" in str(run.failure())
    server.answers += [json_answer("<html>"), json_answer('{"other": []}')]
    server.records.append('{"id": 5, "text": "t5"}')
    with filled.by(web.poll(server.url("/page?since=0"), every="50 ms", records="data.items")) as run:
        until(lambda: run.status()["state"] == "retrying")
        assert "something else than JSON" in run.status()["error"]
        until(lambda: run.status().get("warning"))
        assert "has nothing where its records are to be" in run.status()["warning"]
        run.has([5])
        assert not run.status()["warning"]


def test_a_secret_goes_to_its_server_alone_and_is_not_shown(server, filled, monkeypatch):
    monkeypatch.setenv("API_KEY", TOKEN)
    feed = web.poll(
        f"http://ann:{TOKEN}@127.0.0.1:{server.port}/list?key={TOKEN}", headers={"X-Api-Key": "env:API_KEY"}
    )
    server.answers.append(later(302, Location="http://localhost:1/x"))
    with filled.by(feed) as run:
        until(run.failure)
        assert "answers 302" in str(run.failure())
        assert TOKEN not in str(run.failure()) + repr(feed) + feed.identity
    assert server.asked[0][1]["X-Api-Key"] == TOKEN
    with filled.by(web.poll(server.url("/list"), token="env:NO_SUCH_TOKEN")) as run:  # noqa: S106 -- names a variable
        until(run.failure)
        assert "is to be that of $NO_SUCH_TOKEN" in str(run.failure())


def test_addresses_and_options_that_are_none_are_refused_where_they_are_said():
    for make, url in ((web.poll, "ws://h"), (web.events, "h"), (web.socket, "http://h"), (web.send, 7)):
        with pytest.raises(InvalidPlan, match="no such address"):
            make(url)
    with pytest.raises(InvalidPlan, match="cursor"):
        web.poll("http://h/", cursor="next")
    with pytest.raises(InvalidPlan, match="cursor"):
        web.poll("http://h/{cursor}")
    with pytest.raises(InvalidPlan, match="two logins"):
        web.events("http://ann:x@h/", token="env:T")  # noqa: S106 -- names a variable
    with pytest.raises(InvalidPlan, match="no path in JSON"):
        web.poll("http://h/", records="a..b")
    with pytest.raises(InvalidTime):
        web.poll("http://h/", every="often")
    with pytest.raises(InvalidPlan, match="retries= is not known"):
        web.events("http://h/", retries=3)


def test_a_check_asks_once_and_lands_nothing(server):
    for make, path in ((web.poll, "/list"), (web.events, "/events"), (web.socket, "/socket")):
        scheme = "ws" if make is web.socket else "http"
        make(server.url(path, scheme)).check()
        with pytest.raises(QueueMissing):
            make(server.url("/nothing", scheme)).check()
        with pytest.raises(Unavailable):
            make(f"{scheme}://127.0.0.1:1/").check()
    assert len(server.asked) == 3


def test_parts_of_json_are_as_they_are_written():
    text = ' {"a": {"b": [1.10, {"c": "é\\"]"}, null]}, "a": 2, "n": 12345678901234567890123} '

    def at(path):
        return json_spans.value_at(text, json_spans.path_of(path))

    assert at("a.b[0]") == "1.10"
    assert json_spans.as_text(at("a.b[1].c")) == 'é"]'
    assert at("n") == "12345678901234567890123"
    assert [at(path) for path in ("a.b[2]", "a.b[3]", "a.b[-4]", "x.y", "n.m", "[0]")] == [None] * 6
    assert at("a.b[-2].c") == at("a.b[1].c")
    for bad in ("", "[", "[1", "[1 2]", "[1,]", "{", '{"a"}', '{"a":1,}', "[] x", "nothing"):
        with pytest.raises(ValueError, match=r"."):
            json_spans.elements(bad) if bad[:1] != "{" else json_spans.members(bad)


# ---- server-sent events ------------------------------------------------------------------------------------


def test_events_are_read_as_the_standard_says_in_any_pieces():
    text = (
        "\ufeff: comment\r\ndata: one\nevent: e\rid: 7\n\ndata\ndata\n\ndata:  two\n\nid\nretry: 20\nretry: x\n\n"
        "data:[\r\ndata:]\r\nid: a\0b\r\n\r\ndata: ż\r\rid: 8\ndata: cut off"
    ).encode()
    expected = [("one", "e", "7", "7"), ("\n", "message", None, "7"), (" two", "message", None, "7")]
    expected += [("[\n]", "message", None, ""), ("ż", "message", None, "")]
    for size in (1, 2, 3, 7, len(text)):
        stream = EventStream("", retry=1.0)
        found = [each for at in range(0, len(text), size) for each in stream.events(text[at : at + size])]
        assert [tuple(each) for each in found] == expected
        assert stream.retry == 0.02


def test_a_server_that_ends_an_answer_is_asked_again_behind_the_last_event(server, tmp_path):
    filled = Filled(tmp_path / "log", pa.schema([*COLUMNS, ("kind", pa.string()), ("number", pa.string())]))
    event = "retry: 10\nid: {0}\nevent: new\ndata: {1}\n\n"
    texts = [event.format(at, body.decode()) for at, body in enumerate(bodies(range(3)))]
    server.answers += [event_answer(texts[0]), event_answer(texts[1] + "id: 9\ndata: cut off"), later(204)]
    with filled.by(web.events(server.url("/events"), metadata={"kind": "event", "number": "id"})) as run:
        until(lambda: run.status()["state"] == "ended")
        assert [(row["id"], row["kind"], row["number"]) for row in run.rows()] == [(0, "new", "0"), (1, "new", "1")]
    assert [headers.get("Last-Event-ID") for _, headers in server.asked] == [None, "0", "1"]
    server.answers.append(json_answer("{}"))
    with filled.by(web.events(server.url("/events"))) as run:
        until(run.failure)
        assert "answers with application/json, not with events" in str(run.failure())


def event_answer(text):
    from aiohttp import web as answers

    return answers.Response(text=text, content_type="text/event-stream")


def test_a_silent_connection_is_taken_for_lost(server, filled):
    with filled.by(web.events(server.url("/events"), silence="200 ms")) as run:
        until(lambda: run.status()["state"] == "retrying")
        assert "does not answer" in run.status()["error"]


# ---- WebSocket ---------------------------------------------------------------------------------------------


def test_what_a_websocket_sends_is_landed_also_after_it_was_lost(server, filled, monkeypatch):
    monkeypatch.setenv("SUBSCRIBE", "to all")
    served = Served(server)
    feed = web.socket(served.url("/socket").replace("http", "ws"), first=("hello", "env:SUBSCRIBE"))
    with filled.by(feed) as run:
        until(lambda: server.taken == ["hello", "to all"])
        server.add([*bodies([0]), b"bad", *bodies(range(1, 50))])
        run.has(range(50))
        assert len(run.rows("landed.dead")) == 1
        served.cut()
        until(lambda: run.status()["state"] == "retrying")
        served.mend()
        until(lambda: len(server.taken) == 4)
        server.add(bodies([50]))
        run.has(range(51))
    served.gate.shut()
    assert sorted(filled.ids()) == list(range(51))


def test_rows_are_sent_and_the_other_side_has_them_when_the_epoch_is_done(server):
    served = Served(server)
    sink = for_rows(web.send(served.url("/socket").replace("http", "ws"), first="hello"))
    writer = sink.open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch(range(2_500))]))
    assert len(server.taken) == 2_501, "it is all there when it returns"
    assert server.taken[:2] == ["hello", '{"id":0,"text":"t0"}']
    served.cut()
    with pytest.raises(Unavailable):
        writer.publish(1, iter([batch([1])]))
    served.mend()
    server.taken.clear()
    writer.publish(1, iter([batch([1])]))
    assert server.taken == ["hello", '{"id":1,"text":"t1"}']
    writer.close()
    served.gate.shut()
    refused = for_rows(web.send(server.url("/nothing", "ws"))).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(Exception, match="answers 404"):
        refused.publish(0, iter([batch([1])]))
    refused.close()


def test_a_full_buffer_makes_the_server_wait(server, tmp_path):
    """Nothing is dropped: the answer of a slow reader is TCP."""
    filled = Filled(tmp_path / "log")
    feed = web.socket(server.url("/socket", "ws"), buffer_bytes=20_000)
    with filled.by(feed) as run:
        until(lambda: [path for path, _ in server.asked] and server._waiting)
        server.add(bodies(range(1_000)))
        run.has(range(1_000))
        until(lambda: run.status().get("waited"))
