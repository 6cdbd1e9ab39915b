"""Request and reply over topics of a real broker."""

import threading
import uuid

import pytest

import headrace as hr
from headrace.base.outside import NoReply, RequestFailed
from headrace.connect.kafka.client.failures import TopicMissing

COLUMNS = {"request": "product string, amount int", "reply": "price double"}


@pytest.fixture
def place(broker):
    return broker.address


def test_servers_answer_each_request_once_and_errors_are_replies(place):
    calls, stop = [], threading.Event()

    def price(request):
        calls.append(request["request_id"])
        return {"price": 6 / request["amount"]}

    servers = [hr.Server(place, "quotes", price, partitions=2, **COLUMNS) for _ in range(2)]
    threads = [threading.Thread(target=server.run, args=[stop]) for server in servers]
    for each in threads:
        each.start()
    try:
        with hr.Client(place) as client, hr.Client(place) as other:
            assert client.ask("quotes", {"product": "a", "amount": 2}, timeout="1 minute") == {"price": 3.0}
            sent = [client.send("quotes", {"amount": n}, timeout="1 minute") for n in range(1, 41)]
            assert [each.result(60)["price"] for each in sent] == [6 / n for n in range(1, 41)]
            with pytest.raises(RequestFailed, match="ZeroDivisionError"):
                client.ask("quotes", {"amount": 0}, timeout="1 minute")
            first = client.ask("quotes", {"amount": 1}, request_id="order-1", timeout="1 minute")
            assert other.ask("quotes", {"amount": 1}, request_id="order-1", timeout="1 minute") == first
            assert calls.count("order-1") == 1
        assert len(set(calls)) == len(calls)
    finally:
        stop.set()
        for each in threads:
            each.join()
    for server in servers:
        server.close()
    again = hr.Server(place, "quotes", price, **COLUMNS)
    with hr.Client(place) as client:  # a client that has forgotten its reply
        client._exchange.send("quotes", [{"request_id": "order-1", "amount": 1}])
        for _ in range(200):
            again.step(0.2)
            if again.repeated:
                break
    again.close()
    assert calls.count("order-1") == 1


def test_nobody_answers(place):
    with hr.Client(place) as client:
        with pytest.raises(TopicMissing):
            client.ask("quotes", {"amount": 1})
        hr.Server(place, "quotes", dict, **COLUMNS).close()
        with pytest.raises(NoReply):
            client.ask("quotes", {"amount": 1}, timeout="100 milliseconds")


def test_an_app_on_kafka_answers(place, tmp_path):
    app = hr.App(f"shop{uuid.uuid4().hex[:6]}", storage=tmp_path / "app", topics=place, shards=1)
    quotes = app.rpc("quotes", "product string, amount int")
    quotes.reply(quotes.requests.select("request_id", total="amount * 2"))
    with app.start(carrier="in-process") as running:
        running.await_caught_up(300)
        with hr.Client(place) as client:
            sent = [client.send("quotes", {"amount": n}, request_id=f"{n % 3}", timeout="1 minute") for n in (1, 2, 4)]
            assert [each.result(60) for each in sent] == [{"total": 2}, {"total": 4}, {"total": 2}]
