"""Posts of a sink: each with an id that a repetition has too, tried again, or refused for good."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import WRITER, batch, for_rows, killed, rows_of
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.connect import webhook
from headrace.connect.webhook.posting import PostRefused


class Receiver:
    """A server that keeps what is posted to it, and answers as `answers` says: a status by number of the request."""

    def __init__(self, answers=lambda *_: (200, {})):
        self.requests, self.paths, receiver = [], [], self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                said, headers = answers(len(receiver.requests), body)
                receiver.requests.append((said, dict(self.headers), body))
                receiver.paths.append(self.path)
                self.send_response(said)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/out"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def taken(self):
        return [json.loads(body)["id"] for said, _, body in self.requests if said == 200]


def publish(sink, *epochs):
    writer = for_rows(sink).open(writer=WRITER, clock=ManualClock())
    for epoch, ids in enumerate(epochs):
        writer.publish(epoch, iter([batch(ids)]))
    writer.close()


def test_rows_are_posted_with_an_id_that_is_the_same_when_an_epoch_is_repeated():
    with Receiver() as receiver:
        publish(webhook.post(receiver.url, headers={"X-Text": "text"}), [1, 2], [3])
        publish(webhook.post(receiver.url, headers={"X-Text": "text"}), [1, 2], [3])
        ids = {}
        for _, headers, body in receiver.requests:
            ids.setdefault(json.loads(body)["id"], set()).add(headers["Idempotency-Key"])
            assert headers["Content-Type"] == "application/json"
            assert headers["X-Text"] == f"t{json.loads(body)['id']}"
        assert {key: len(found) for key, found in ids.items()} == {1: 1, 2: 1, 3: 1}
        assert len(set.union(*ids.values())) == 3


def test_a_text_in_an_address_is_no_other_address():
    odd = ["a/b?c=d&e#f", "../..", "100 %2F+é", "", "{id}"]
    with Receiver() as receiver:
        rows = batch(list(range(5))).set_column(1, "text", pa.array(odd))
        sink = for_rows(webhook.post(f"{receiver.url}/{{text}}/end?q={{text}}&id={{id}}", in_flight=1))
        sink.open(writer=WRITER, clock=ManualClock()).publish(0, iter([rows]))
        parts = [urlsplit(path) for path in receiver.paths]
        assert [unquote(each.path.removeprefix("/out/").removesuffix("/end")) for each in parts] == odd
        assert [each.path.count("/") for each in parts] == [3] * 5
        found = [parse_qs(each.query, keep_blank_values=True) for each in parts]
        assert found == [{"q": [text], "id": [str(at)]} for at, text in enumerate(odd)]


def test_a_kill_in_the_middle_of_an_epoch_repeats_ids(tmp_path):
    with Receiver() as receiver:
        sink = webhook.post(receiver.url)
        killed(for_rows(sink), "in_epoch", tmp_path)
        sent = {(headers["Idempotency-Key"], body) for _, headers, body in receiver.requests}
        assert sent
        writer = for_rows(sink).open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch([0, 1]), batch([2, 3])]))
        assert len({(headers["Idempotency-Key"], body) for _, headers, body in receiver.requests} | sent) == 4


def test_what_may_pass_is_tried_again_no_sooner_than_the_receiver_says():
    moments = []

    def answers(number, _):
        moments.append(time.monotonic())
        return [(503, {}), (429, {"Retry-After": "1"}), (200, {})][min(number, 2)]

    with Receiver(answers) as receiver:
        publish(webhook.post(receiver.url), [1])
        assert [said for said, _, _ in receiver.requests] == [503, 429, 200]
        assert moments[2] - moments[1] >= 1.0


def test_a_receiver_that_stays_away_is_unavailable_and_what_it_took_is_not_posted_again(monkeypatch):
    monkeypatch.setattr("headrace.connect.webhook.posting.FIRST_PAUSE", 0.01)
    down = [True]
    with Receiver(lambda _, body: (503 if down[0] and b'"id":2' in body else 200, {})) as receiver:
        writer = for_rows(webhook.post(receiver.url, in_flight=1)).open(writer=WRITER, clock=ManualClock())
        with pytest.raises(Unavailable, match="does not take messages now: 503"):
            writer.publish(0, iter([batch([1, 2, 3])]))
        down[0] = False
        writer.publish(0, iter([batch([1, 2, 3])]))
        assert receiver.taken() == [1, 2, 3]
        url = receiver.url
    with pytest.raises(Unavailable, match="does not take messages now: ClientConnectorError"):
        publish(webhook.post(url), [1])


def test_what_is_refused_for_good_stops_the_app_or_is_a_dead_letter_once(tmp_path):
    with Receiver(lambda _, body: (422 if b'"id":2' in body else 200, {})) as receiver:
        with pytest.raises(PostRefused, match="refuses a message: 422") as raised:
            publish(webhook.post(receiver.url), [1, 2, 3])
        assert "dead_letters=" in raised.value.hint
        sink = webhook.post(receiver.url, dead_letters=tmp_path / "refused")
        for _ in range(2):
            publish(sink, [1, 2, 3])
    with hr.Log(tmp_path / "refused") as log:
        (letter,) = rows_of(log, "webhook.dead")
        assert (json.loads(letter["record"])["id"], letter["reason"]) == (2, "422")


def test_messages_of_a_key_arrive_in_order():
    with Receiver(lambda number, _: (503 if number % 5 == 1 else 200, {})) as receiver:
        publish(webhook.post(receiver.url, key="text", in_flight=4), [1, 2, 3, 1, 2, 3, 1, 1, 2])
        keys = {}
        for said, headers, _ in receiver.requests:
            if said == 200:
                keys.setdefault(headers["headrace-key"], []).append(int(headers["Idempotency-Key"].rpartition("/")[2]))
    assert all(numbers == sorted(numbers) for numbers in keys.values())
    assert sum(map(len, keys.values())) == 9


def test_texts_with_line_ends_are_headers_of_one_line():
    with Receiver() as receiver:
        rows = batch([1]).set_column(1, "text", pa.array(["a\r\nX-Evil: b\0"]))
        sink = webhook.post(receiver.url, key="text", headers={"X-Text": "text"})
        writer = for_rows(sink).open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([rows]))
        writer.close()
        ((_, headers, body),) = receiver.requests
        assert headers["X-Text"] == headers["headrace-key"] == "a  X-Evil: b "
        assert json.loads(body)["text"] == "a\r\nX-Evil: b\0"
