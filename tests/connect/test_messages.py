"""Messages of brokers become rows of a topic, once each."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.messages.reading import Message, MessageLanding, reading
from headrace.connect.topics import TopicSpec
from headrace.log import Log

SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string())])


class Opened:
    """A topic that is opened anew for each landing, as after a crash."""

    def __init__(self, folder):
        self.log = Log(folder, fsync=False)
        self.topics = EmbeddedTopics(self.log, partitions=1, fault=lambda point: None)  # noqa: ARG005 -- nothing
        self.landings = []

    def land(self, *messages, schema=SCHEMA, key=(), position=None, known=(), **options):
        for each in self.landings:
            each.close()
        spec = TopicSpec(name="t", schema=schema, key=key)
        self.landings = [self.topics.landing(spec, feed="f", limit=9, read=lambda: 0)]
        landing = MessageLanding(self.landings[0], reading(known, options))
        landing.land(list(messages), position=position)
        return landing

    def rows(self, name="t"):
        topic = self.log.topic(name)
        return [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]


@pytest.fixture
def topic(tmp_path):
    opened = Opened(tmp_path)
    yield opened
    for each in opened.landings:
        each.close()
    opened.log.close()


def message(number, **more):
    return Message(b'{"id": %d, "text": "t"}' % number, id=f"m{number}", **more)


def test_messages_are_rows_and_bad_ones_are_dead_letters_with_the_reason(topic):
    topic.land(message(1), Message(b"{", id="bad"), message(2), Message(None, id="none"))
    assert [row["id"] for row in topic.rows()] == [1, 2]
    assert [(row["record"], bool(row["reason"])) for row in topic.rows("t.dead")] == [("{", True), ("", True)]


def test_a_message_is_landed_once_whether_it_comes_again_in_one_append_or_after_a_crash(topic):
    topic.land(message(1), message(1), message(2))
    topic.land(message(2), message(3), Message(b"{", id="bad"))
    topic.land(message(1), Message(b"{", id="bad"))
    assert [row["id"] for row in topic.rows()] == [1, 2, 3]
    assert len(topic.rows("t.dead")) == 1


def test_ids_are_remembered_for_so_many_messages_and_no_longer(topic):
    for some in (range(5), (2, 3, 4), (0, 1)):
        topic.land(*(message(i) for i in some), remember=3)
    assert [row["id"] for row in topic.rows()] == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        ("m1", "7431160d65c1010c5e92d398569d1266"),
        ("ü", "ccea9926cd506ef041d05adbd5a2dfb7"),
        ("\udcff", "160416d0d89f5bbc5e2b0acee3dcd3bf"),
        (7, "9e287f590d2dcbbf387bfb70928e621d"),
    ],
)
def test_what_is_stored_of_an_id_stays_the_same_in_every_release(topic, found, stored):
    topic.land(Message(b'{"id": 1, "text": ""}', found))
    assert topic.landings[0].position().hex().endswith(stored)


def test_messages_without_ids_and_feeds_that_remember_none_land_everything(topic):
    topic.land(Message(b'{"id": 1}'), Message(b'{"id": 1}'))
    topic.land(Message(b'{"id": 4}', ""), Message(b'{"id": 4}', ""))
    topic.land(message(2), message(2), remember=0)
    topic.land(message(3), message(3), id=None)
    assert [row["id"] for row in topic.rows()] == [1, 1, 4, 4, 2, 2, 3, 3]


def test_another_piece_of_metadata_may_be_the_id(topic):
    topic.land(*(message(i, headers={"order": b"o7"}) for i in range(3)), id="header:order")
    assert [row["id"] for row in topic.rows()] == [0]


def test_a_position_is_kept_beside_the_ids_also_where_nothing_was_landed(topic):
    assert topic.land(message(1), position=b"").position == b""
    assert topic.land(message(1)).position == b""
    assert topic.land(position=b"7").position == b"7"
    topic.land(message(1), message(2))
    assert topic.land().position == b"7"
    assert [row["id"] for row in topic.rows()] == [1, 2]


def test_metadata_fills_declared_columns(topic):
    schema = pa.schema(
        [
            *SCHEMA,
            ("route", pa.string()),
            ("sent", pa.timestamp("us", "UTC")),
            ("tenant", pa.int64()),
            ("message", pa.string()),
            ("again", pa.bool_()),
        ]
    )
    at = datetime(2026, 1, 31, 10, 0, 0, 250_000, UTC)
    metadata = {"route": "route", "sent": "time", "tenant": "header:tenant", "message": "id", "again": "again"}
    topic.land(
        message(1, headers={"tenant": b"7"}, about={"route": "a.b", "time": at, "again": True}),
        message(2, headers={"tenant": "many"}),
        message(3, headers={"tenant": 9}),
        schema=schema,
        known=["route", "time", "again"],
        metadata=metadata,
    )
    first, third = topic.rows()
    assert (first["route"], first["sent"], first["tenant"], first["message"], first["again"]) == ("a.b", at, 7, "m1", 1)
    assert (third["route"], third["sent"], third["tenant"], third["again"]) == (None, None, 9, None)
    (dead,) = topic.rows("t.dead")
    assert dead["reason"].startswith("its header:tenant is no value of the column tenant: ")


def test_a_format_of_one_column_leaves_others_to_metadata(topic):
    topic.land(
        Message(b"hello", id="m1"),
        schema=pa.schema([("message", pa.string()), ("text", pa.string())]),
        format="text",
        metadata={"message": "id"},
    )
    assert [(row["message"], row["text"]) for row in topic.rows()] == [("m1", "hello")]


def test_a_message_with_a_key_and_no_body_deletes_a_row_of_a_table(tmp_path):
    opened = Opened(tmp_path)
    spec = TopicSpec(name="t", schema=SCHEMA, key=("id",), upserts=True)
    landing = opened.topics.landing(spec, feed="f", limit=9, read=lambda: 0)
    messages = MessageLanding(landing, reading((), {"key": "id"}))
    messages.land([message(1, key=b"1"), Message(b'{"text": "u"}', key=b"2"), Message(b"", key=b"1")])
    found = [(row["id"], row["text"], row["_deleted"]) for row in opened.rows()]
    assert found == [(1, "t", False), (2, "u", False), (1, None, True)]
    landing.close()
    opened.log.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metadata": {"route": "rout"}}, "rout"),
        ({"metadata": {"route": "header:"}}, "header:"),
        ({"id": "uuid"}, "uuid"),
        ({"fromat": "json"}, "format"),
        ({"format": "jsno"}, "jsno"),
        ({"key": "id", "metadata": {"id": "id"}}, "id"),
    ],
)
def test_options_that_are_not_known_are_refused(options, said):
    with pytest.raises(InvalidPlan, match=said):
        reading(["route"], options)


def test_more_ids_than_a_position_can_have_are_refused():
    with pytest.raises(InvalidArgument, match="remember"):
        reading((), {"remember": 20_001})


def test_a_column_of_metadata_must_be_declared(topic):
    with pytest.raises(InvalidPlan, match='no column "txt"') as raised:
        topic.land(message(1), metadata={"txt": "id"})
    assert "text" in raised.value.hint
