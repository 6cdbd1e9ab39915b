"""The thread that reads replies may end at any moment: no request waits for one that has ended."""

import threading

import pytest

import headrace as hr
from headrace.base.errors import InvalidArgument
from headrace.connect.rpc.client import _Reader

COLUMNS = {"request": "amount int", "reply": "price double"}


@pytest.fixture
def place(tmp_path):
    return f"log:{tmp_path / 'log'}"


@pytest.fixture
def served(place):
    stop = threading.Event()
    server = hr.Server(place, "quotes", lambda request: {"price": request["amount"] * 1.5}, **COLUMNS)
    thread = threading.Thread(target=server.run, args=[stop])
    thread.start()
    yield
    stop.set()
    thread.join()
    server.close()


def then(monkeypatch, happens):
    """Let something happen once, between the choice of a reader and its first look at a request."""
    wait_for, once = _Reader.wait_for, [happens]

    def late(self, name):
        if once:
            once.pop()(self)
        return wait_for(self, name)

    monkeypatch.setattr(_Reader, "wait_for", late)


def fail(reader, error):
    def poll(seconds):  # noqa: ARG001 -- of the protocol
        raise error

    reader._tail.poll = poll
    reader._thread.join(30)
    assert not reader._thread.is_alive()


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("error", [InvalidArgument("it cannot be read"), RuntimeError("of no kind of ours")])
def test_a_request_that_comes_just_when_the_reader_has_failed_gets_its_reply(place, monkeypatch, error):
    then(monkeypatch, lambda reader: fail(reader, error))
    with hr.Client(place) as client:
        assert client.ask("quotes", {"amount": 2}, timeout="20 seconds") == {"price": 3.0}


def test_whatever_ends_the_reader_is_the_error_of_those_who_wait(place):
    hr.Server(place, "quotes", dict, **COLUMNS).close()
    with hr.Client(place) as client:
        waiting = client.send("quotes", {"amount": 2})
        fail(client._readers["quotes"], RuntimeError("of no kind of ours"))
        with pytest.raises(RuntimeError, match="of no kind of ours"):
            waiting.result(0)


@pytest.mark.usefixtures("served")
def test_a_request_that_comes_just_when_the_client_is_closed_is_refused(place, monkeypatch):
    client = hr.Client(place)
    then(monkeypatch, lambda reader: client.close())  # noqa: ARG005 -- of the protocol
    with pytest.raises(InvalidArgument, match="the client is closed"):
        client.send("quotes", {"amount": 2})


@pytest.mark.usefixtures("served")
def test_a_reader_that_has_failed_leaves_nothing_open(place, monkeypatch):
    with hr.Client(place) as client:
        client.ask("quotes", {"amount": 1}, timeout="20 seconds")
        reader, closed = client._readers["quotes"], []
        monkeypatch.setattr(reader._tail, "close", lambda: closed.append(1))
        fail(reader, RuntimeError("of no kind of ours"))
        assert client.ask("quotes", {"amount": 2}, timeout="20 seconds") == {"price": 3.0}
    assert closed == [1]
