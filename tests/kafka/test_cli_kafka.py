"""`headrace topics … --at kafka://…` on a real broker."""

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.cli import produce
from headrace.cli.main import root
from headrace.connect.kafka import KafkaAddress
from headrace.connect.kafka.client.administration import cluster


@pytest.fixture
def topics(broker, monkeypatch):
    """Call `headrace topics …` on the broker, with this test's own topics."""
    monkeypatch.setattr(produce, "SAY_SECONDS", float("inf"))  # progress comes between the lines that are expected

    def call(*arguments, stdin=None, at=broker.address):
        command = ["topics", *(str(each) for each in arguments), "--at", at]
        result = CliRunner().invoke(root, command, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def records(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


CLICKS = (
    '{"user": "ann", "n": 1, "at": "2026-01-31T10:00:00Z"}\n'
    '{"user": "bob", "n": 2, "at": "2026-01-31T10:00:01Z"}\n'
    '{"user": "ann", "_deleted": true}\n'
)


@pytest.fixture
def clicks(topics):
    made = topics("create", "clicks", "--partitions", 1, "--retention", "none")
    assert made.exit_code == 0, made.stderr
    result = topics("produce", "clicks", "--key", "user", "--event-time", "at", stdin=CLICKS)
    assert (result.exit_code, result.stderr) == (0, "appended 3 rows to clicks\n")
    return "clicks"


def test_a_topic_is_created_listed_described_and_deleted(topics, clicks):
    again = topics("create", clicks)
    assert again.exit_code == 1
    assert again.stderr.startswith("[TOPIC_EXISTS]")
    assert json.loads(topics("list", "--json").stdout) == [
        {"topic": "clicks", "partitions": 1, "replication": 1, "rows": 3}
    ]
    assert topics("list").stdout.splitlines()[1].split() == ["clicks", "1", "1", "3"]
    described = json.loads(topics("describe", clicks, "--json").stdout)
    assert described["offsets"] == [{"partition": 0, "start": 0, "end": 3, "rows": 3}]
    assert described["settings"]["cleanup.policy"] == "delete"
    assert "topic clicks: 3 rows in 1 partition" in topics("describe", clicks).stdout
    refused = topics("delete", clicks)
    assert "destroys its 3 rows" in refused.stderr
    assert refused.exit_code == 1
    assert topics("delete", clicks, "--yes").stdout == "deleted topic clicks and its 3 rows\n"
    assert "has no topics whose names begin with" in topics("list").stderr


@pytest.mark.parametrize("command", ["create", "describe", "consume", "produce", "delete"])
def test_the_prefix_of_an_address_is_no_topic(topics, command):
    result = topics(command, "")
    assert (result.exit_code, result.stderr.split()[0]) == (1, "[INVALID_NAME]")


def test_who_sends_records_without_a_key_to_a_compacted_topic_is_told_how_to_give_one(topics):
    topics("create", "latest", "--cleanup", "compact")
    assert "headrace topics produce --key" in topics("produce", "latest", stdin='{"a": 1}').stderr


def test_the_limit_of_a_topic_counts_for_what_is_sent(topics):
    topics("create", "large", "--set", "max.message.bytes=3000000")
    assert topics("produce", "large", stdin=json.dumps({"a": "x" * 2_500_000})).stderr == "appended 1 row to large\n"
    refused = topics("produce", "large", stdin=json.dumps({"a": "x" * 3_500_000}))
    assert refused.stderr.startswith("[RECORD_TOO_LARGE]")
    assert "max.message.bytes" in refused.stderr


def test_a_topic_is_created_with_kafkas_settings(topics):
    made = topics("create", "users", "--cleanup", "compact", "--retention", "2 days", "--set", "segment.ms=60000")
    assert made.exit_code == 0, made.stderr
    settings = json.loads(topics("describe", "users", "--json").stdout)["settings"]
    wanted = {"cleanup.policy": "compact", "retention.ms": "172800000", "segment.ms": "60000"}
    assert {name: settings[name] for name in wanted} == wanted


def test_records_are_printed_with_key_value_headers_and_position(topics, clicks):
    first, second, third = records(topics("consume", clicks))
    assert first == {
        "partition": 0,
        "offset": 0,
        "time": "2026-01-31T10:00:00Z",
        "key": "ann",
        "value": {"user": "ann", "n": 1, "at": "2026-01-31T10:00:00Z"},
        "headers": [],
    }
    assert (second["key"], second["offset"]) == ("bob", 1)
    assert (third["key"], third["value"]) == ("ann", None)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--key", "ann"], [0, 2]),
        (["--from", 1], [1, 2]),
        (["--from", "2026-01-31 10:00:01", "--limit", 1], [1]),
        (["--until", 1], [0]),
        (["--limit", 2], [0, 1]),
        (["--where", "get_json_object(value, '$.n') = '2'"], [1]),
        (["--where", "_deleted"], [2]),
        (["--from", "latest"], []),
    ],
)
def test_records_are_filtered(topics, clicks, options, offsets):
    assert [record["offset"] for record in records(topics("consume", clicks, *options))] == offsets


def test_many_records_go_to_a_topic_that_takes_small_batches(topics):
    topics("create", "small", "--set", "max.message.bytes=3000")
    lines = "".join(f'{{"id": {number}}}\n' for number in range(500))
    assert topics("produce", "small", "--key", "id", stdin=lines).stderr == "appended 500 rows to small\n"


def test_values_alone_are_lines_that_produce_reads_back(topics, clicks):
    lines = topics("consume", clicks, "--format", "text").stdout
    assert lines == "".join(CLICKS.splitlines(keepends=True)[:2])
    topics("create", "copy", "--partitions", 1)
    assert topics("produce", "copy", "--format", "text", stdin=lines).exit_code == 0
    assert topics("consume", "copy", "--format", "text").stdout == lines


def test_csv_has_a_header_on_both_sides(topics):
    topics("create", "prices", "--partitions", 1)
    result = topics("produce", "prices", "--format", "csv", "--key", "id", stdin='id,name\n1,"a,b"\n2,\n')
    assert result.exit_code == 0, result.stderr
    assert [(r["key"], r["value"]) for r in records(topics("consume", "prices"))] == [
        ("1", {"id": "1", "name": "a,b"}),
        ("2", {"id": "2", "name": None}),
    ]
    header, first, _ = topics("consume", "prices", "--format", "csv").stdout.splitlines()
    assert header == "partition,offset,time,key,value,headers"
    assert first.endswith(',1,"{""id"": ""1"", ""name"": ""a,b""}",')


def test_bytes_that_are_no_text_and_headers_are_shown(topics, broker):
    topics("create", "raw", "--partitions", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(broker.topic("raw"), b"\xff\x00", "k", headers=[("trace", b"1"), ("bin", b"\xfe"), ("none", None)])
    producer.produce(broker.topic("raw"), b"{broken")
    producer.flush()
    first, second = records(topics("consume", "raw"))
    assert first["value"] == {"base64": "/wA="}
    assert first["headers"] == [["trace", "1"], ["bin", {"base64": "/g=="}], ["none", None]]
    assert (second["key"], second["value"]) == (None, "{broken")


def test_times_of_any_year_are_shown(topics, broker):
    topics("create", "far", "--set", f"message.timestamp.after.max.ms={2**63 - 1}", "--set", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for millis in (-5, 253402300800000, 2**53):
        producer.produce(broker.topic("far"), b"{}", "k", timestamp=millis)
    producer.flush()
    assert [each["time"] for each in records(topics("consume", "far"))] == [
        "1969-12-31T23:59:59.995000Z",
        "+10000-01-01T00:00:00Z",
        "+287396-10-12T08:59:00.992000Z",
    ]


def test_several_key_columns_are_a_json_object(topics):
    topics("create", "sales", "--partitions", 1)
    line = '{"shop": 1, "day": "mon", "n": 5}\n'
    topics("produce", "sales", "--key", "shop", "--key", "day", stdin=line)
    assert records(topics("consume", "sales"))[0]["key"] == '{"shop":1,"day":"mon"}'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: a JSON object is expected, not [1]"),
        ('{"n": 1}', 'line 2: it has no "user", which is a column of the key'),
        ('{"user": "x", "at": null}', 'line 2: column "at" is the event time, and has no value'),
        ('{"user": "x", "at": "soon"}', "line 2: 'soon' is not a time"),
        ('{"user": "x", "n": NaN}', "line 2: not JSON: JSON has no NaN"),
    ],
)
def test_a_bad_line_is_named_and_the_lines_before_it_are_appended(topics, line, why):
    topics("create", "clicks", "--partitions", 1)
    good = CLICKS.splitlines(keepends=True)[0]
    command = ("produce", "clicks", "--key", "user", "--event-time", "at")
    result = topics(*command, stdin=good + line + "\n" + good)
    assert result.exit_code == 1
    assert f"[BAD_LINE] {why}" in result.stderr
    assert "Appended before it: 1 row." in result.stderr
    skipping = topics(*command, "--skip-bad", "--json", stdin=good + line + "\n" + good)
    assert json.loads(skipping.stdout) == {"topic": "clicks", "appended": 2, "bad": 1}


def test_records_of_an_aborted_transaction_are_not_shown(topics, broker):
    topics("create", "orders", "--partitions", 1)
    options = {"bootstrap.servers": broker.bootstrap, "transactional.id": broker.topic("writer"), "log_level": 0}
    producer = Producer(options)
    producer.init_transactions()
    for value, end in ((b"lost", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(broker.topic("orders"), value)
        producer.flush()
        end()
    assert [record["value"] for record in records(topics("consume", "orders"))] == ["kept"]


def test_who_sends_records_that_retention_removes_is_warned(topics):
    topics("create", "old", "--partitions", 1, "--retention", "7 days")
    options = ("--key", "user", "--event-time", "at")
    assert "Kafka removes records older than 7 days" in topics("produce", "old", *options, stdin=CLICKS).stderr
    topics("create", "dated", "--partitions", 1, "--set", "message.timestamp.type=LogAppendTime")
    assert "--event-time had no effect" in topics("produce", "dated", *options, stdin=CLICKS).stderr


@pytest.mark.parametrize("command", ["describe", "consume", "produce", "delete"])
def test_an_unknown_topic_is_named_with_its_nearest(topics, clicks, command):
    result = topics(command, clicks[:-1] + "z", stdin="")
    assert result.exit_code == 1
    assert result.stderr.startswith("[TOPIC_MISSING]")
    assert 'Did you mean "clicks"?' in result.stderr


def test_a_refused_login_says_so_and_shows_no_password(topics, broker):
    address = broker.kafka.sasl_address("ada", password="guessed")  # noqa: S106
    result = topics("list", at=address)
    assert result.exit_code == 1
    assert result.stderr.startswith("[LOGIN_REFUSED]")
    assert "guessed" not in result.stderr + result.stdout


def test_a_user_without_rights_is_told_what_is_missing(topics, broker, clicks):
    result = topics("consume", clicks, at=f"{broker.kafka.sasl_address('eve')}&prefix={broker.prefix}")
    assert result.exit_code == 1
    assert result.stderr.startswith("[ACCESS_REFUSED]")


def test_the_lag_of_a_consumer_group_is_described(topics, broker, clicks):
    group = f"{broker.prefix}readers"
    cluster(KafkaAddress.parse(broker.address)).set_group_offsets(group, {(broker.topic(clicks), 0): 1})
    assert json.loads(topics("describe", clicks, "--json").stdout)["groups"] == [{"group": group, "lag": 2}]


@pytest.mark.parametrize("option", [["--log", "x"], ["--app", "x.py"]])
def test_a_cluster_and_a_log_exclude_each_other(topics, option):
    result = topics("list", *option)
    assert result.exit_code == 2
    assert "--at for those of Kafka" in result.stderr


def test_an_app_whose_topics_are_in_kafka_says_where_without_its_password(tmp_path):
    program = tmp_path / "shop.py"
    address = "kafka://broker:9092?sasl.username=ada&sasl.password=lovelace"
    program.write_text(
        f'import headrace as hr\napp = hr.App("shop", topics="{address}")\napp.stream("orders", "id int")\n'
    )
    result = CliRunner().invoke(root, ["topics", "list", "--app", str(program)])
    assert result.exit_code == 1
    assert 'Leave --app out, and say --at "kafka://broker:9092?' in result.stderr
    assert "lovelace" not in result.stderr


@pytest.mark.parametrize("source", ["own", "connector"])
def test_an_app_whose_topics_are_in_kafka_is_verified(broker, tmp_path, source):
    storage, program = tmp_path / "shop", tmp_path / "shop.py"
    given = "" if source == "own" else f', source=kafka.topic("{broker.address}", "orders")'
    cluster(KafkaAddress.parse(broker.address)).create(broker.topic("orders"))
    program.write_text(
        "import headrace as hr\nfrom headrace.connect import kafka\n"
        f'app = hr.App("shop", storage="{storage}", topics="{broker.address}", shards=1)\n'
        f'app.stream("orders", "id int"{given}).to_topic("out", key="id")\n'
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(broker.topic("orders"), '{"id": 1}')
    producer.flush()
    run = ["run", str(program), "--local", "--until-caught-up"]
    commands = [run, ["verify", str(program)], [*run, "--verify"], ["verify", "--storage", str(storage)]]
    for command in commands[: 4 if source == "own" else 3]:
        result = CliRunner().invoke(root, command)
        assert result.exit_code == 0, result.stderr
    if source == "connector":  # a storage does not say where its outputs are
        result = CliRunner().invoke(root, commands[3])
        assert (result.exit_code, "say which app it is: headrace verify FILE" in result.stdout) == (1, True)


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["groups", "list"], 'headrace topics describe NAME --at "kafka://broker:9092"'),
        (["groups", "describe", "shop"], 'headrace topics describe NAME --at "kafka://broker:9092"'),
        (["groups", "reset", "shop", "--to", "earliest"], "kafka-consumer-groups"),
        (["topics", "compact", "orders"], "kafka-configs"),
        (["topics", "verify"], "kafka-configs"),
    ],
)
def test_a_command_for_topics_of_a_log_says_what_there_is_for_those_of_kafka(tmp_path, command, instead):
    program = tmp_path / "shop.py"
    program.write_text(
        'import headrace as hr\napp = hr.App("shop", topics="kafka://broker:9092")\napp.stream("orders", "id int")\n'
    )
    result = CliRunner().invoke(root, [*command, "--app", str(program)])
    assert result.exit_code == 1
    assert instead in result.stderr
    assert "Leave --app out" not in result.stderr, "the command has no --at"
