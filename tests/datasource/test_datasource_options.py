"""What a user may say, and what is said of what he may not."""

import pytest

from headrace.base.errors import DataLoss, HeadraceError, InvalidOption, InvalidTopic, UnknownTopic
from headrace.engine.spark.datasource import subscription
from headrace.engine.spark.datasource.options import EARLIEST, LATEST, read_options, write_options

MISUSE = [
    ({"subcribe": "a"}, 'reading a topic has no option "subcribe"', 'Did you mean "subscribe"?'),
    ({"kafka.bootstrap.servers": "x"}, 'has no option "kafka.bootstrap.servers"', "are for topics of Kafka"),
    ({"path": ""}, "the log's folder is not given", '.option("path"'),
    ({"path": "missing"}, 'there is no log at "missing"', "Give the folder of an hr.Log"),
    ({"subscribe": None}, "exactly one of subscribe, subscribePattern, assign", "not none"),
    ({"assign": '{"a": [0]}'}, "exactly one of", "not subscribe and assign"),
    ({"subscribe": " , "}, 'the option subscribe cannot be " , "', "separated by commas"),
    ({"subscribe": None, "subscribePattern": "("}, 'subscribePattern cannot be "("', "no regular expression"),
    ({"subscribe": None, "assign": "{"}, 'the option assign cannot be "{"', '{"searches": [0, 1]}'),
    ({"subscribe": None, "assign": '{"a": []}'}, "the option assign cannot be", '{"searches": [0, 1]}'),
    ({"subscribe": None, "assign": '{"a": [-1]}'}, "the option assign cannot be", '{"searches": [0, 1]}'),
    ({"startingOffsets": "first"}, 'startingOffsets cannot be "first"', 'Say "earliest" or "latest"'),
    ({"startingOffsets": '{"a": 3}'}, "startingOffsets cannot be", '{"searches": {"0": 23, "1": -2}}'),
    ({"startingOffsets": '{"a": {"x": 3}}'}, "startingOffsets cannot be", '"1": -2}}'),
    ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets cannot be", '"1": -2}}'),
    ({"startingOffsets": '{"a": {"0": true}}'}, "startingOffsets cannot be", '"1": -2}}'),
    ({"endingOffsets": "earliest"}, 'endingOffsets cannot be "earliest"', 'Say "latest", or'),
    ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets cannot be", '"1": -1}}'),
    ({"startingTimestamp": "today"}, 'startingTimestamp cannot be "today"', "whole number from 0 on"),
    ({"endingTimestamp": "-5"}, 'endingTimestamp cannot be "-5"', "whole number from 0 on"),
    ({"startingTimestamp": "5", "startingOffsets": "latest"}, "startingTimestamp and startingOffsets exclude", "one"),
    ({"endingTimestamp": "5", "endingOffsets": "latest"}, "endingTimestamp and endingOffsets exclude", "one"),
    (
        {"startingOffsetsByTimestampStrategy": "x"},
        "startingOffsetsByTimestampStrategy cannot be",
        '"error" or "latest"',
    ),
    ({"maxOffsetsPerTrigger": "0"}, 'maxOffsetsPerTrigger cannot be "0"', "whole number from 1 on"),
    ({"minPartitions": "two"}, 'minPartitions cannot be "two"', "whole number from 1 on"),
    ({"failOnDataLoss": "no"}, 'failOnDataLoss cannot be "no"', 'Say "true" or "false"'),
    ({"includeMetadata": "1"}, 'includeMetadata cannot be "1"', 'Say "true" or "false"'),
    ({"columns": ","}, 'the option columns cannot be ","', "separated by commas"),
]
NO_WRITES = [
    ({"topik": "a"}, 'writing a topic has no option "topik"', 'Did you mean "topic"?'),
    ({"topic": " "}, "no topic to write to is given", '.option("topic", "searches")'),
    ({"topic": "a", "producer": "p"}, "producer and sequence belong together", "both or neither"),
    ({"topic": "a", "producer": "p", "sequence": "x"}, 'sequence cannot be "x"', "whole number from 0 on"),
]


def given(folder, options):
    parsed = {"path": str(folder), "subscribe": "a"} | options
    return {name: value for name, value in parsed.items() if value is not None}


@pytest.mark.parametrize(("options", "what", "hint"), MISUSE)
def test_what_cannot_be_read_is_said(tmp_path, monkeypatch, options, what, hint):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption) as error:
        read_options(given(tmp_path, options))
    assert what in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize(("options", "what", "hint"), NO_WRITES)
def test_what_cannot_be_written_is_said(tmp_path, options, what, hint):
    with pytest.raises(InvalidOption) as error:
        write_options({"path": str(tmp_path)} | options)
    assert what in str(error.value)
    assert hint in str(error.value)


def test_options_of_spark_itself_pass_and_names_have_no_case(tmp_path):
    parsed = write_options({"path": str(tmp_path), "TOPIC": "a", "queryname": "q", "checkpointlocation": "x"})
    assert parsed.topic == "a"
    assert read_options({"path": f"file:{tmp_path}", "SUBSCRIBE": "b, a,b"}).names == ("b", "a")


def spans(log, **options):
    parsed = read_options({"path": str(log.path), "subscribe": "searches"} | options)
    topics = subscription.subscribed(log, parsed)
    return subscription.starts(topics, parsed, default=EARLIEST), subscription.ends(topics, parsed)


@pytest.mark.usefixtures("searches")
def test_offsets_are_taken_as_kafka_takes_them(log):
    everything = {"searches": {0: 0, 1: 0}}, {"searches": {0: 5, 1: 5}}
    assert spans(log) == everything
    assert spans(log, startingOffsets="LATEST")[0] == everything[1]
    assert spans(log, startingOffsets='{"searches": {"0": -2, "1": 3}}')[0] == {"searches": {0: 0, 1: 3}}
    assert spans(log, endingOffsets='{"searches": {"0": -1, "1": 3}}')[1] == {"searches": {0: 5, 1: 3}}
    assert spans(log, startingTimestamp="300000", endingTimestamp="420000") == (
        {"searches": {0: 3, 1: 2}},
        {"searches": {0: 4, 1: 3}},
    )
    late = {"startingTimestamp": "540000"}
    with pytest.raises(InvalidOption, match="partition 0 has no record of startingTimestamp 540000 or later"):
        spans(log, **late)
    assert spans(log, **late, startingOffsetsByTimestampStrategy="latest")[0] == {"searches": {0: 5, 1: 4}}


@pytest.mark.usefixtures("searches")
def test_which_topics_is_said_by_names_a_pattern_or_partitions(log):
    log.create_topic("clicks", "id bigint")

    def topics(**options):
        parsed = read_options({"path": str(log.path)} | options)
        found = subscription.subscribed(log, parsed)
        return {topic.name: list(subscription.partitions_read(topic, parsed)) for topic in found}

    assert topics(subscribe="searches") == {"searches": [0, 1]}
    assert topics(subscribePattern=".*s") == {"clicks": [0], "searches": [0, 1]}
    assert topics(assign='{"searches": [1]}') == {"searches": [1]}
    for options, kind, expected in (
        ({"subscribe": "serches"}, UnknownTopic, 'Did you mean "searches"?'),
        ({"subscribePattern": "search"}, InvalidOption, "The topics of .* are: clicks, searches"),
        ({"assign": '{"searches": [2]}'}, InvalidTopic, "Its partitions are 0 to 1"),
    ):
        with pytest.raises(kind, match=expected):
            topics(**options)


@pytest.mark.usefixtures("searches")
@pytest.mark.parametrize(
    ("options", "kind", "expected"),
    [
        (
            {"startingOffsets": '{"searches": {"0": 1}}'},
            InvalidOption,
            'has no offset for topic "searches", partition 1',
        ),
        ({"endingOffsets": '{"other": {"0": 1}}'}, InvalidOption, "endingOffsets has no offset"),
        (
            {"startingOffsets": '{"searches": {"0": 1, "1": 1}, "clicks": {"0": 1}}'},
            InvalidOption,
            'startingOffsets names topic "clicks", partition 0, which is not read',
        ),
        ({"startingOffsets": '{"searches": {"0": 6, "1": 0}}'}, DataLoss, "to be read at offset 6, which it does not"),
    ],
)
def test_offsets_that_cannot_be_are_named(log, options, kind, expected):
    with pytest.raises(kind) as error:
        spans(log, **options)
    assert expected in str(error.value)
    assert isinstance(error.value, HeadraceError)
    assert error.value.hint


@pytest.mark.usefixtures("searches")
def test_lost_offsets_are_passed_over_where_that_is_asked_for(log):
    expected = '{"searches": {"0": 99, "1": 1}}'
    assert spans(log, startingOffsets=expected, failOnDataLoss="false")[0] == {"searches": {0: 5, 1: 1}}


def test_the_words_for_first_and_last_are_kafkas():
    assert (EARLIEST, LATEST) == (-2, -1)
