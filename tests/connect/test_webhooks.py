"""Webhooks: 2xx says that a record is durable, and every other answer that it is not; posts come with an id."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
import threading
import warnings
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest
from killed_feeds import KilledFeed

import headrace as hr
from broker_cases import WRITER, Filled, batch, for_rows, ids_of, killed, until
from budget import fast
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.time import SystemClock
from headrace.connect import webhook
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.webhook.server import Address, HttpServer
from headrace.connect.webhook.signatures import SCHEMES, signed
from headrace.testing import check_feed

SECRET, TOKEN = "s3cret-w0rd", "t0ken"


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def filled(tmp_path):
    return Filled(tmp_path / "log")


def one(i):
    return json.dumps({"id": i, "text": f"t{i}"}).encode()


def ask(port, body, headers=None, *, path="/in", method="POST"):
    """Send a request; return the status, the body and the headers of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def status(*args, **more):
    return ask(*args, **more)[0]


@contextmanager
def serving(filled, port, **options):
    with filled.by(webhook.endpoint(f"http://127.0.0.1:{port}/in", **options)) as run:
        until(lambda: open_at(port), "it listens")
        yield run


def open_at(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Sender:
    """Sends requests until they are answered with 2xx, as senders of webhooks do."""

    def __init__(self, port):
        self.port = port

    def add(self, ids):
        threading.Thread(target=self.send, args=(list(ids),), daemon=True).start()

    def send(self, ids):
        for i in ids:
            while True:
                with suppress(OSError, http.client.HTTPException):
                    if status(self.port, one(i), {"Idempotency-Key": f"m{i}"}) == 204:
                        break
                threading.Event().wait(0.02)


def test_an_endpoint_is_a_feed(port):
    class Outside(Sender):
        feed = webhook.endpoint(f"http://127.0.0.1:{port}/in")
        exactly_once = True

    check_feed(lambda: Outside(port), seconds=60)


def test_an_answer_is_sent_when_the_record_is_durable_and_not_before(filled, port):
    gate, reached = threading.Event(), threading.Event()

    def fault(point):
        if point == "after_landing":
            reached.set()
            assert gate.wait(60)

    answers = []
    with hr.Log(filled.folder) as log:
        landing = EmbeddedTopics(log, partitions=1, fault=fault).landing(
            filled.spec, feed="f", limit=1 << 60, read=lambda: 0
        )
        stop = threading.Event()
        feed = webhook.endpoint(f"http://127.0.0.1:{port}/in")
        runs = [threading.Thread(target=feed.run, args=(landing, stop))]
        runs[0].start()
        until(lambda: open_at(port))
        runs.append(threading.Thread(target=lambda: answers.append(status(port, one(1)))))
        runs[1].start()
        assert reached.wait(60)
        assert ids_of(log) == [1], "it is in the log"
        assert answers == []
        gate.set()
        until(lambda: answers == [204])
        stop.set()
        for run in runs:
            run.join()
        landing.close()


def test_what_cannot_be_taken_is_refused_with_the_reason_and_nothing_of_it_is_landed(filled, port):
    array = {"Content-Type": "application/json; charset=utf-8"}
    with serving(filled, port, max_bytes=500) as run:
        assert ask(port, b"{bad")[:2] == (400, "it is no JSON object\n")
        assert status(port, b"") == 400
        assert ask(port, b'{"id": "x"}')[1] == 'the field id is no whole number: "x"\n'
        assert ask(port, b"[" + one(1) + b', {"id": "x"}]', array)[:2] == (
            400,
            'an element: the field id is no whole number: "x"\n',
        )
        for bad in (b"[1, 2", b"[{}", b"[{} {}]", b"[{}] x", b"[" * 5000, b'["\xff"]'):
            assert status(port, bad, array) in (400, 413)
        assert status(port, one(1), method="GET") == 405
        assert status(port, one(1), path="/other") == 404
        assert status(port, b"x" * 501) == 413
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/in", iter([b"x" * 300, b"x" * 300]), encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()
        assert run.rows() == []
        assert status(port, b"[" + one(1) + b" ,\n" + one(2) + b"]", array) == 204
        assert status(port, b" [ ] ", array) == 204
        assert status(port, one(3) + b"\n\n" + one(4) + b"\n", {"Content-Type": "application/x-ndjson"}) == 204
        assert sorted(ids_of(run.log)) == [1, 2, 3, 4]
        assert run.rows("landed.dead") == []


def test_a_bad_request_takes_no_other_with_it(filled, port):
    with serving(filled, port) as run:
        answers = {}

        def send(i):
            answers[i] = status(port, b"bad" if i % 3 == 0 else one(i))

        threads = [threading.Thread(target=send, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == {i: 400 if i % 3 == 0 else 204 for i in range(12)}
        assert sorted(ids_of(run.log)) == [i for i in range(12) if i % 3]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_signatures_are_checked(filled, port, scheme, monkeypatch):
    monkeypatch.setenv("NEW_SECRET", SECRET)
    now = SystemClock().now()

    def headers(body, secret=SECRET, at=now):
        return signed(scheme, secret, body, id="m1", now=at)

    with serving(filled, port, secret=("old", "env:NEW_SECRET"), signature=scheme) as run:
        assert status(port, one(1), headers(one(1))) == 204
        assert status(port, one(2), headers(one(2), "old")) == 204
        assert ask(port, one(3), headers(one(4)))[:2] == (401, "its signature is of another secret or body\n")
        assert status(port, one(3), headers(one(3), "wrong")) == 401
        assert "it has no header" in ask(port, one(3))[1]
        assert status(port, one(3), dict.fromkeys(headers(one(3)), "\xff")) == 401
        if scheme != "github":
            for moved in (-301, 301):
                at = SystemClock().now() + moved * 1_000_000
                assert status(port, one(3), headers(one(3), at=at)) == 401
        assert {1, 2} >= set(ids_of(run.log)) >= {1}


def test_github_and_standard_webhooks_sign_as_they_say():
    """Vectors of their documentation: GitHub's "Hello, World!", and one by hand for Standard Webhooks' example."""
    body = b"Hello, World!"
    assert signed("github", "It's a Secret to Everybody", body, id="", now=0) == {
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }
    secret, payload = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    found = signed("standard", secret, payload, id="msg_p5jXN8AQM9LWM0D4loKWxJek", now=1_614_265_330_000_000)
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_token_is_asked_for(filled, port):
    with serving(filled, port, token=SECRET):
        assert status(port, one(1)) == 401
        assert status(port, one(1), {"Authorization": "Bearer wrong"}) == 401
        assert status(port, one(1), {"Authorization": f"Bearer {SECRET}"}) == 204


def test_no_secret_is_shown_and_a_missing_variable_is_named(filled, port, monkeypatch):
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    feed = webhook.endpoint(f"http://127.0.0.1:{port}/in", secret=SECRET, token=SECRET)
    sink = webhook.post(f"http://ann:{SECRET}@127.0.0.1:1/x?key={SECRET}", secret=SECRET, token=SECRET)
    assert SECRET not in repr(feed) + feed.identity + sink.where
    assert SECRET not in repr(sink).replace(sink.how.address, "")
    with filled.by(webhook.endpoint(f"http://127.0.0.1:{port}/in", secret=("env:NO_SUCH_SECRET",))) as run:
        until(run.failure)
        assert "the secret of /in is to be that of $NO_SUCH_SECRET" in str(run.failure())


def test_a_repeated_id_is_landed_once_also_after_a_restart(filled, port):
    with serving(filled, port) as run:
        for _ in range(2):
            assert status(port, one(1), {"idempotency-key": "a"}) == 204
            assert status(port, one(2), {"X-GitHub-Delivery": "b"}) == 204
            assert (
                status(port, b"[" + one(3) + b"," + one(4) + b"]", {"webhook-id": "c", "content-type": "text/json"})
                == 204
            )
        until(lambda: run.status().get("repeated") == 4)
    with serving(filled, port) as run:
        assert status(port, one(1), {"idempotency-key": "a"}) == 204
        assert status(port, one(5), {"idempotency-key": "d"}) == 204
        assert sorted(ids_of(run.log)) == [1, 2, 3, 4, 5]


def test_the_elements_of_a_batch_are_told_apart_where_a_header_is_the_id(tmp_path, port):
    filled = Filled(tmp_path / "log", pa.schema([("id", pa.int32()), ("delivery", pa.string())]))
    options = {"id": "header:X-Delivery", "metadata": {"delivery": "header:X-Delivery"}}
    bodies = [(b"[%s, %s]" % (one(1), one(2)), "a"), (one(3) + b"\n" + one(4), "b"), (one(5), "c"), (b"[]", "d")]
    for _ in range(2):
        with serving(filled, port, **options) as run:
            for body, delivery in bodies:
                kind = "application/x-ndjson" if b"\n" in body else "application/json"
                assert status(port, body, {"X-Delivery": delivery, "Content-Type": kind}) == 204
            found = sorted((row["id"], row["delivery"]) for row in run.rows())
            assert found == [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")]


def test_cloudevents_come_in_each_mode_and_once(filled, port):
    def event(i, **more):
        return {
            "specversion": "1.0",
            "id": f"e{i}",
            "source": "/shop",
            "type": "x",
            "data": {"id": i, "text": "t"},
        } | more

    structured = {"Content-Type": "application/cloudevents+json"}
    binary = {
        "ce-id": "e2",
        "ce-source": "/shop",
        "CE-Specversion": "1.0",
        "ce-type": "x",
        "Content-Type": "application/json",
    }
    together = {"Content-Type": "application/cloudevents-batch+json"}
    with serving(filled, port, format="cloudevents") as run:
        for _ in range(2):
            assert status(port, json.dumps(event(1)), structured) == 204
            assert status(port, json.dumps({"id": 2, "text": "t"}), binary) == 204
            assert status(port, json.dumps([event(1), event(2), event(3), event(3, source="/other")]), together) == 204
        assert "source" in ask(port, json.dumps(event(9, source=None)), structured)[1]
        assert sorted(ids_of(run.log)) == [1, 2, 3, 3]


def test_metadata_of_a_request_goes_into_columns(tmp_path, port):
    columns = [("id", pa.int32()), ("event", pa.string()), ("remote", pa.string()), ("query", pa.string())]
    filled = Filled(tmp_path / "log", pa.schema(columns))
    metadata = {"event": "header:x-github-event", "remote": "remote", "query": "query"}
    with serving(filled, port, metadata=metadata) as run:
        assert status(port, b'{"id": 1}', {"X-GitHub-Event": "push"}, path="/in?a=b") == 204
        assert status(port, b'{"id": 2}', {"X-GitHub-Event": "pu\xffsh"}, path="/in") == 204
        row, odd = run.rows()
        assert odd["event"] == "pu\ufffdsh", "a header that is no text"
        assert (row["event"], row["remote"], row["query"]) == ("push", "127.0.0.1", "a=b")


@pytest.mark.parametrize("turns", fast(0, 2, of=range(5)))
def test_a_connection_that_comes_while_the_server_closes_is_closed_too(port, turns):
    """It is accepted, and the server does not know it yet: so many turns of the loop ago."""
    server = HttpServer(Address(host="127.0.0.1", port=port, certificate=None, key=None))

    async def closed():
        connection = socket.create_connection(("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server._close()
        return connection

    gc.collect()  # what other tests left open is not of this one
    with warnings.catch_warnings(record=True) as said, server.run(closed()):
        warnings.simplefilter("always")
        server._end()
        gc.collect()
        assert [str(each.message) for each in said] == []


def test_senders_are_told_to_come_back_while_the_app_is_behind(filled, port):
    with hr.Log(filled.folder, fsync=False) as log:
        topics, read = EmbeddedTopics(log, partitions=1, fault=lambda point: None), [0]  # noqa: ARG005 -- no crash
        landing = topics.landing(filled.spec, feed="f", limit=1, read=lambda: read[0])
        said, stop = [], threading.Event()
        landing.report = lambda **progress: said.append(progress)
        feed = webhook.endpoint(f"http://127.0.0.1:{port}/in")
        thread = threading.Thread(target=feed.run, args=(landing, stop))
        thread.start()
        until(lambda: open_at(port))
        assert status(port, one(1)) == 204
        until(lambda: status(port, b"bad") == 429)
        assert ask(port, one(2))[2]["Retry-After"] == "1"
        until(lambda: said and said[-1]["waited"] >= 1)
        read[0] = 1
        until(lambda: status(port, one(2)) == 204)
        stop.set()
        thread.join()
        landing.close()
        assert ids_of(log) == [1, 2]


def test_feeds_share_a_port_by_path_and_a_port_in_use_is_waited_for(filled, tmp_path, port):
    other = Filled(tmp_path / "other")
    with serving(filled, port) as first:
        with other.by(webhook.endpoint(f"http://127.0.0.1:{port}/other")) as second:
            until(lambda: status(port, one(2), path="/other") == 204)
            assert status(port, one(1)) == 204
            assert (ids_of(first.log), ids_of(second.log)) == ([1], [2])
        assert status(port, one(1), path="/other") == 404
        with Filled(tmp_path / "twin").by(webhook.endpoint(f"http://127.0.0.1:{port}/in")) as twin:
            until(twin.failure)
            assert "two feeds listen at port" in str(twin.failure())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with filled.by(webhook.endpoint(f"http://127.0.0.1:{port}/in")) as run:
            until(lambda: run.status()["state"] == "retrying")
            taken.close()
            until(lambda: status(port, one(3)) == 204 if open_at(port) else False)


@pytest.mark.parametrize("point", [pytest.param("before_landing", marks=pytest.mark.prove), "after_landing"])
def test_a_kill_between_receiving_and_answering_loses_and_doubles_nothing(filled, port, tmp_path, point):
    sender = Sender(port)
    sending = threading.Thread(target=sender.send, args=(range(20),))
    sending.start()
    killed(webhook.endpoint(f"http://127.0.0.1:{port}/in"), point, tmp_path)
    with serving(filled, port):
        sending.join(60)
        assert not sending.is_alive()
    assert sorted(filled.ids()) == list(range(20))


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("localhost:80/x", {}, "this is no address to listen at"),
        ("ftp://localhost/x", {}, "this is no address to listen at"),
        ("https://localhost/x", {}, "needs a certificate"),
        ("http://localhost/x", {"tls": ("a", "b")}, "is not https"),
        ("http://localhost/x", {"signature": "pgp"}, "signature='pgp' is not known"),
        ("http://localhost/x", {"secret": ""}, "a secret of a webhook is empty"),
        ("http://localhost/x", {"max_bytes": 0}, "max_bytes=0"),
        ("http://localhost/x", {"metadata": {"a": "nothing"}}, "is no metadata"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_the_call(url, options, error):
    with pytest.raises((InvalidPlan, InvalidArgument), match=error):
        webhook.endpoint(url, **options)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_one_app_posts_another_one_takes_once(filled, port, scheme):
    with serving(filled, port, secret=SECRET, signature=scheme, token=TOKEN) as run:
        sink = webhook.post(f"http://127.0.0.1:{port}/in", secret=SECRET, signature=scheme, token=TOKEN)
        writer = for_rows(sink).open(writer=WRITER, clock=SystemClock())
        for _ in range(2):
            for epoch, ids in enumerate([[1, 2], [3]]):
                writer.publish(epoch, iter([batch(ids)]))
        assert sorted(ids_of(run.log)) == [1, 2, 3]


@pytest.mark.prove
@pytest.mark.parametrize(("count", "kills"), [(100_000, 10)])
def test_requests_that_were_answered_are_there_once_whatever_is_killed(port, tmp_path, count, kills):
    """16 senders that keep their connections repeat what was not answered; the process of the feed is killed."""
    senders, answered = 16, [0] * 16

    def send(sender):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for i in range(sender, count, senders):
            said = 0
            while said != 204:
                try:
                    connection.request("POST", "/in", one(i), {"Idempotency-Key": f"m{i}"})
                    answer = connection.getresponse()
                    answer.read()
                    said = answer.status
                except (OSError, http.client.HTTPException):
                    connection.close()
                    threading.Event().wait(0.05)
            answered[sender] += 1
        connection.close()

    feed = KilledFeed(webhook.endpoint(f"http://127.0.0.1:{port}/in"), tmp_path)
    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    with feed.killing(kills, lambda: sum(answered) / count, seed=count):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    feed.kill()
    assert feed.kills == kills
    assert sorted(Filled(tmp_path / "log").ids()) == list(range(count))
