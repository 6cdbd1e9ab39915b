"""Request and reply over topics of the embedded log: nothing is done twice, nothing is lost, errors are clear."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import wait
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.errors import InvalidArgument, InvalidPlan, InvalidRows, InvalidTime, UnknownTopic
from headrace.base.outside import NoReply, RequestFailed, Unavailable
from headrace.base.time import ManualClock
from headrace.connect.rpc.client import _Reader
from headrace.connect.rpc.exchange import Received
from headrace.log import Log
from headrace.testing import Driver

COLUMNS = {"request": "product string, amount int", "reply": "price double"}
SERVER = Path(__file__).parent / "rpc_server.py"


@pytest.fixture
def place(tmp_path):
    return f"log:{tmp_path / 'log'}"


@pytest.fixture
def serve(place):
    """Start servers in threads."""
    opened, stop = [], threading.Event()

    def start(answer, **options):
        server = hr.Server(place, "quotes", answer, **(COLUMNS | options))
        thread = threading.Thread(target=server.run, args=[stop])
        thread.start()
        opened.append((server, thread))
        return server

    yield start
    stop.set()
    for server, thread in opened:
        thread.join()
        server.close()


def stepped(server):
    for _ in range(100):
        server.step(0.1)


def price(request):
    return {"price": request["amount"] * 1.5}


def test_a_request_gets_its_reply_and_requests_of_many_threads_theirs(place, serve):
    serve(price)
    with hr.Client(place) as client:
        assert client.ask("quotes", {"product": "a", "amount": 2}) == {"price": 3.0}
        sent = [client.send("quotes", {"product": "a", "amount": number}) for number in range(50)]
        assert [each.result(30)["price"] for each in sent] == [number * 1.5 for number in range(50)]
        found = []
        threads = [
            threading.Thread(target=lambda n=n: found.append((n, client.ask("quotes", {"amount": n})["price"])))
            for n in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(found) == [(n, n * 1.5) for n in range(8)]


def test_who_cancels_a_request_does_not_keep_others_from_their_replies(place, serve):
    """One thread reads all replies: a future that it cannot set would end it."""
    go_on = threading.Event()
    serve(lambda request: price(request) if go_on.wait(30) else None)
    with hr.Client(place) as client:
        cancelled = client.send("quotes", {"amount": 1})
        assert cancelled.cancel()
        go_on.set()
        assert client.ask("quotes", {"amount": 2}) == {"price": 3.0}


def test_a_reply_that_comes_at_the_end_of_the_time_is_the_answer(place, serve, monkeypatch):
    """Else there would be no reply, to a request of no id."""
    go_on, forget = threading.Event(), _Reader.forget

    def late(self, future):
        go_on.set()
        wait([future], 30)
        return forget(self, future)

    monkeypatch.setattr(_Reader, "forget", late)
    serve(lambda request: price(request) if go_on.wait(30) else None)
    with hr.Client(place) as client:
        assert client.ask("quotes", {"amount": 2}, timeout="100 milliseconds") == {"price": 3.0}


def test_an_error_of_the_function_is_the_error_of_its_request_alone(place, serve):
    serve(lambda request: {"price": 1 / request["amount"]})
    with hr.Client(place) as client:
        with pytest.raises(RequestFailed, match="ZeroDivisionError") as failed:
            client.ask("quotes", {"amount": 0})
        assert failed.value.why == "ZeroDivisionError: division by zero"
        assert client.ask("quotes", {"amount": 2}) == {"price": 0.5}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"price": "much"}, "InvalidRows"),
        ({"price": 1, "currency": "EUR"}, "no column 'currency'"),
        ({"price": object()}, "InvalidRows"),
        (None, "InvalidArgument: reply=None is no mapping of names"),
        ([("price", 1.0)], "no mapping of names"),
        (ValueError("\udcff"), r"ValueError: \\udcff"),
    ],
)
def test_a_reply_that_does_not_fit_is_the_error_of_its_request_alone(place, given, why):
    def answer(request):
        if isinstance(given, Exception) and not request["amount"]:
            raise given
        return {"price": request["amount"]} if request["amount"] else given

    with hr.Server(place, "quotes", answer, **COLUMNS, partitions=1) as server, hr.Client(place) as client:
        sent = [client.send("quotes", {"amount": amount}, request_id=f"r{amount}") for amount in (1, 0, 2)]
        while server.answered < 3:
            server.step(0.1)
        assert [sent[0].result(30), sent[2].result(30)] == [{"price": 1.0}, {"price": 2.0}]
        with pytest.raises(RequestFailed, match=why):
            sent[1].result(30)
        again = client.send("quotes", {"amount": 0}, request_id="r0")
        with pytest.raises(RequestFailed, match=why):
            again.result(30)


@pytest.mark.parametrize("request_", [None, 7, "amount", [("amount", 1)], {1: 2}])
def test_a_request_is_a_mapping(place, request_):
    with (
        hr.Server(place, "quotes", price, **COLUMNS),
        hr.Client(place) as client,
        pytest.raises(InvalidArgument, match="is no mapping of names"),
    ):
        client.ask("quotes", request_)


@pytest.mark.parametrize("deadline", ["soon", [1], {}])
def test_a_deadline_that_is_none_is_the_error_of_its_request(place, deadline):
    """In Kafka anybody may write anything."""
    with hr.Server(place, "quotes", price, **COLUMNS) as server:
        reply = server._reply(Received(0, 0, {"request_id": "r1", "deadline": deadline, "amount": 1}))
        assert reply["request_id"] == "r1"
        assert reply["error"]


def test_a_repeated_request_is_done_once_and_gets_the_same_reply(place, serve):
    calls = []

    def book(request):
        calls.append(request["request_id"])
        return {"price": float(len(calls))}

    server = serve(book)
    with hr.Client(place) as one, hr.Client(place) as other:
        first = one.ask("quotes", {"amount": 1}, request_id="order-1")
        assert other.ask("quotes", {"amount": 1}, request_id="order-1") == first
        together = [each.send("quotes", {"amount": 1}, request_id="order-2") for each in (one, other, one)]
        assert {each.result(30)["price"] for each in together} == {2.0}
    assert Counter(calls) == {"order-1": 1, "order-2": 1}
    assert server.answered >= 2


def test_a_new_server_knows_the_replies_of_the_one_before(place):
    calls = []

    def book(request):
        calls.append(request)
        return {"price": 1.0}

    with hr.Server(place, "quotes", book, **COLUMNS) as server, hr.Client(place) as client:
        sent = client.send("quotes", {"amount": 1}, request_id="a")
        while not sent.done():
            server.step(0.1)
    with Log(place.removeprefix("log:")) as log:  # a client that has lost its memory sends it again
        log.topic("quotes").append([{"request_id": "a", "amount": 1}])
    with hr.Server(place, "quotes", book, **COLUMNS) as server:
        while not server.answered:
            server.step(0.1)
        assert (len(calls), server.repeated) == (1, 1)


def test_what_could_not_be_sent_is_answered_later(place, monkeypatch):
    """A failure between the function and the reply loses no request: it is polled again."""
    with hr.Server(place, "quotes", price, **COLUMNS) as server, hr.Client(place) as client:
        sent = client.send("quotes", {"amount": 2})
        send = server._exchange.send

        def fail(*_, **__):
            raise Unavailable("the disk is away")

        monkeypatch.setattr(server._exchange, "send", fail)
        with pytest.raises(Unavailable):
            stepped(server)
        monkeypatch.setattr(server._exchange, "send", send)
        while not sent.done():
            server.step(0.1)
        assert sent.result() == {"price": 3.0}


def test_a_request_whose_time_is_over_is_not_begun(place):
    calls = []

    def answer(request):
        calls.append(request)
        return {"price": 0.0}

    with hr.Server(place, "quotes", answer, **COLUMNS) as server, hr.Client(place) as client:
        with pytest.raises(NoReply, match='no reply from "quotes" within 50') as late:
            client.ask("quotes", {"amount": 1}, timeout="50 milliseconds")
        while not server.step(0.1):
            pass
        assert (calls, server.expired) == ([], 1)
        sent = client.send("quotes", {"amount": 1}, request_id=late.value.request_id)
        while not sent.done():
            server.step(0.1)
        assert len(calls) == 1


def test_replies_are_forgotten_after_their_time(tmp_path):
    clock = ManualClock()
    calls = []
    with Log(tmp_path / "log", clock=clock, fsync=False) as log:
        options = COLUMNS | {"remember": "1 minute", "partitions": 1}
        with hr.Server(log, "quotes", lambda _: calls.append(1) or {"price": 0.0}, **options) as server:
            for seconds, known in ((0, 1), (30, 1), (40, 2)):
                clock.advance(seconds)
                log.topic("quotes").append([{"request_id": "a", "amount": 1}])
                while not server.step():
                    pass
                assert len(calls) == known


def test_a_timeout_below_zero_is_refused_before_anything_is_sent(place, serve):
    serve(price)
    with hr.Client(place) as client:
        with pytest.raises(InvalidTime, match="timeout='-1 s' is below zero"):
            client.ask("quotes", {"amount": 1}, timeout="-1 s")
        with pytest.raises(InvalidTime):
            client.send("quotes", {"amount": 1}, timeout="-1 s")
    assert Log(place.removeprefix("log:")).topic("quotes").end_offsets() == dict.fromkeys(range(4), 0)
    with pytest.raises(InvalidTime, match="remember='-1 s' is below zero"):
        hr.Client(place, remember="-1 s")


def test_what_is_not_possible_is_refused(place, serve):
    with hr.Client(place) as client, pytest.raises(UnknownTopic) as error:
        client.ask("quotes", {"amount": 1})
    assert 'No service "quotes" was ever started here' in str(error.value)
    with pytest.raises(UnknownTopic):
        hr.Server(place, "quotes", price)
    with pytest.raises(InvalidArgument, match="cannot be called"):
        hr.Server(place, "quotes", 3)
    with pytest.raises(InvalidArgument, match="no option 'grup'"):
        hr.Server(place, "quotes", price, grup="a")
    with pytest.raises(InvalidPlan, match="not a place"):
        hr.Client(3)
    serve(price)
    client = hr.Client(place)
    with pytest.raises(InvalidRows):
        client.ask("quotes", {"amount": "many"})
    with pytest.raises(InvalidArgument, match="request_id"):
        client.ask("quotes", {"amount": 1, "request_id": "a"})
    client.close()
    client.close()
    with pytest.raises(InvalidArgument, match="closed"):
        client.ask("quotes", {"amount": 1})


def test_an_app_answers_each_request_once(tmp_path):
    app = hr.App("shop")
    prices = app.table("prices", "product string, price double", key="product")
    quotes = app.rpc("quotes", "product string, amount int")
    found = quotes.requests.join(prices, on="product", how="left")
    quotes.reply(found.select("request_id", total="amount * price", error="if(price is null, 'no such product', null)"))
    with Driver(app, storage=tmp_path / "app") as driver:
        driver.send("prices", {"product": "a", "price": 2.0})
        driver.run()
        with hr.Client(tmp_path / "app" / "log") as client:
            sent = [
                client.send("quotes", {"product": product, "amount": 3}, request_id=name)
                for product, name in (("a", "1"), ("b", "2"), ("a", "1"))
            ]
            driver.run()
            assert sent[0].result(30) == sent[2].result(30) == {"total": 6.0}
            with pytest.raises(RequestFailed, match="no such product"):
                sent[1].result(30)
            assert client.ask("quotes", {"product": "a", "amount": 3}, request_id="1") == {"total": 6.0}
        assert len(driver.read("quotes.replies")) == 2


def test_replies_say_which_request_they_answer():
    quotes = hr.App("shop").rpc("quotes", "product string")
    with pytest.raises(InvalidPlan, match="Keep the column request_id"):
        quotes.reply(quotes.requests.select("product"))
    with pytest.raises(InvalidPlan, match="request_id"):
        quotes.reply(quotes.requests.select("request_id"))
    counts = quotes.requests.group_by("request_id").agg(n="count(*)")
    with pytest.raises(InvalidPlan, match="no stream of this app"):
        quotes.reply(counts)
    with pytest.raises(InvalidPlan, match="the client fills it"):
        hr.App("shop").rpc("quotes", "request_id string")


@pytest.mark.parametrize(("servers", "requests"), [(2, 60), pytest.param(4, 3_000, marks=pytest.mark.prove)])
def test_servers_share_requests_and_one_that_is_killed_is_replaced(tmp_path, place, servers, requests):
    hr.Server(place, "quotes", price, **COLUMNS).close()
    seen = tmp_path / "seen"
    seen.mkdir()

    def begin():
        return subprocess.Popen([sys.executable, str(SERVER), place, str(seen)])

    processes = [begin() for _ in range(servers)]
    try:
        with hr.Client(place) as client:
            sent = []
            for number in range(requests):
                sent.append(client.send("quotes", {"amount": number}, timeout="5 minutes"))
                if number == requests // 2:
                    while len(list(seen.iterdir())) < servers:  # each has had some
                        time.sleep(0.05)
                        sent.append(client.send("quotes", {"amount": 0}, timeout="5 minutes"))
                    processes[0].send_signal(signal.SIGKILL)
                    processes[0].wait()
            replies = [each.result(120)["price"] for each in sent]
        assert sorted(replies)[-requests + 1 :] == [number * 1.5 for number in range(1, requests)]
        assert len({path.name for path in seen.iterdir()}) == servers
    finally:
        for each in processes:
            each.kill()
            each.wait()


def test_the_example_prints_what_the_page_shows():
    house = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, house / "examples/quotes.py"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert f"$ python examples/quotes.py\n{ran.stdout}" in (house / "docs/rpc.md").read_text()
