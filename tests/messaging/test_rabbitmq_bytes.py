"""The bytes of a connection to RabbitMQ: deliveries are read as pika reads them, whatever is between their frames."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

pika = pytest.importorskip("pika")
from pika import frame  # noqa: E402 - only where there is a client
from pika.exceptions import BodyTooLongError  # noqa: E402
from pika.spec import Basic, BasicProperties  # noqa: E402

from headrace.connect.rabbitmq.deliveries import Deliveries, id_of, is_plain, number_of  # noqa: E402

OURS = 3
DELIVER = Basic.Deliver("us", 1, exchange="", routing_key="")
TEXTS = st.text(max_size=12)
PROPERTIES = st.builds(
    BasicProperties,
    content_type=st.none() | TEXTS,
    content_encoding=st.none() | TEXTS,
    headers=st.none() | st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9), max_size=2),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 9),
    correlation_id=st.none() | TEXTS,
    reply_to=st.none() | TEXTS,
    expiration=st.none() | TEXTS,
    message_id=st.none() | TEXTS | st.binary(max_size=5),
    timestamp=st.none() | st.integers(0, 1 << 40),
    type=st.none() | TEXTS,
)
OTHERS = st.sampled_from(
    [
        frame.Heartbeat(),
        frame.Method(OURS, Basic.QosOk()),
        frame.Method(5, Basic.Deliver("other", 1, exchange="", routing_key="")),
        frame.Body(5, b"of another channel"),
    ]
)
MESSAGES = st.lists(
    st.tuples(
        st.builds(Basic.Deliver, st.just("us"), st.integers(1, 1 << 40), st.booleans(), TEXTS, TEXTS),
        PROPERTIES,
        st.lists(st.binary(min_size=1, max_size=30), max_size=3),
        st.lists(OTHERS, max_size=2),
    ),
    max_size=6,
)


def encoded(properties):
    return b"".join(properties.encode())


@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 2_000), max_size=12))
def test_deliveries_are_read_wherever_their_bytes_are_cut(messages, cuts):
    """Frames of other channels, and other methods, go to pika whole and in order."""
    sent, foreign = b"", []
    for method, properties, parts, between in messages:
        whole = [frame.Method(OURS, method), frame.Header(OURS, sum(map(len, parts)), properties)]
        for each in (*whole, *(frame.Body(OURS, part) for part in parts)):
            sent += each.marshal()
            for other in between:
                sent += other.marshal()
                foreign.append(other.marshal())
    found, others = [], []
    deliveries = Deliveries(others.append)
    deliveries.take_those_of(OURS, lambda *message: found.append(message))
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    for first, end in pairwise(places):
        deliveries.read(sent[first:end])
    assert others == foreign
    assert [body for _, _, body in found] == [b"".join(parts) for _, _, parts, _ in messages]
    for (method, properties, _), (sent_method, sent_properties, *_) in zip(found, messages, strict=True):
        assert Basic.Deliver().decode(method) == sent_method
        assert number_of(method) == sent_method.delivery_tag
        assert properties == encoded(sent_properties)


@given(PROPERTIES)
def test_the_id_of_a_message_without_headers_is_read_as_pika_reads_it(properties):
    assert is_plain(encoded(properties)) == (properties.headers is None)
    if properties.headers is None:
        assert id_of(encoded(properties)) == BasicProperties().decode(encoded(properties)).message_id


def test_properties_with_more_flags_are_left_to_pika():
    assert not is_plain(b"\x00\x81\x00\x00\x02m1")


def test_what_is_no_frame_goes_to_pika_which_refuses_it():
    others = []
    deliveries = Deliveries(others.append)
    deliveries.take_those_of(OURS, lambda *_: pytest.fail("there is no message"))
    deliveries.read(b"AMQP\x00\x00\x09\x01")
    assert others == [b"AMQP\x00\x00\x09\x01"]
    cut = frame.Method(OURS, DELIVER).marshal()[:-1] + b"\x00"
    deliveries.read(cut)
    assert others[1:] == [cut]


def test_a_body_that_is_longer_than_it_says_is_refused():
    deliveries = Deliveries(lambda _: None)
    deliveries.take_those_of(OURS, lambda *_: pytest.fail("there is no message"))
    deliveries.read(frame.Method(OURS, DELIVER).marshal())
    deliveries.read(frame.Header(OURS, 2, BasicProperties()).marshal())
    with pytest.raises(BodyTooLongError):
        deliveries.read(frame.Body(OURS, b"abc").marshal())
