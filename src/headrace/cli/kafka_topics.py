"""`headrace topics … --at kafka://…`: what a cluster has, and changes of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.base.broker_errors import TopicMissing
from headrace.base.errors import TopicExists, did_you_mean
from headrace.base.names import check_topic
from headrace.base.text import counted
from headrace.base.time import SystemClock, duration
from headrace.cli.confirming import NotConfirmed
from headrace.cli.output import note, say, say_json, say_rows
from headrace.cli.values import as_bytes, as_duration
from headrace.connect.kafka.client.administration import KafkaTopic, cluster
from headrace.connect.kafka.record_topic import RecordTopic, spans

if TYPE_CHECKING:
    from headrace.connect.kafka.address import KafkaAddress

_MILLI = 1_000
_SHOWN = ("cleanup.policy", "message.timestamp.type", "retention.ms", "retention.bytes", "max.message.bytes")
_NAMES = {"retention": "retention.ms", "delete_retention": "delete.retention.ms", "retention_bytes": "retention.bytes"}


def opened(address: KafkaAddress, name: str) -> RecordTopic:
    """Return a topic, or raise an error that suggests a similar name and how to create it."""
    found(address, name)
    return RecordTopic(address, name)


def found(address: KafkaAddress, name: str) -> KafkaTopic:
    """Return what the cluster says about a topic; an error suggests a similar name, and how to create it."""
    try:
        return cluster(address).topic(_in_cluster(address, name))
    except TopicMissing as error:
        similar = did_you_mean(name, [each.removeprefix(address.prefix) for each in cluster(address).names()])
        error.hint = f'{similar} Create it: headrace topics create {name} --at "{address}"'.strip()
        raise


def _in_cluster(address: KafkaAddress, name: str) -> str:
    """Return a topic's name in the cluster; the prefix alone is none."""
    return address.cluster_name(name or check_topic(name))


def list_topics(address: KafkaAddress, *, as_json: bool) -> None:
    """Print the topics, without those that Kafka and Headrace keep for themselves."""
    described = cluster(address).describe(cluster(address).names())
    offsets = spans(address, described.values())
    rows = [
        {
            "topic": name.removeprefix(address.prefix),
            "partitions": topic.partitions,
            "replication": topic.replication,
            "rows": sum(end - start for at, (start, end) in offsets.items() if at[0] == name),
        }
        for name, topic in sorted(described.items())
    ]
    if as_json:
        say_json(rows)
    elif rows:
        say_rows(rows, ["topic", "partitions", "replication", "rows"])
    else:
        with_prefix = f' whose names begin with "{address.prefix}"' if address.prefix else ""
        note(f"Kafka at {address.servers} has no topics{with_prefix}")


def describe_topic(address: KafkaAddress, name: str, *, as_json: bool) -> None:
    """Print a topic's settings, partitions and readers."""
    topic = found(address, name)
    settings = cluster(address).settings(topic.name)
    partitions = [
        {"partition": number, "start": start, "end": end, "rows": end - start}
        for (_, number), (start, end) in spans(address, [topic]).items()
    ]
    description: dict[str, Any] = {
        "topic": name,
        "id": topic.id,
        "partitions": topic.partitions,
        "replication": topic.replication,
        "rows": sum(part["rows"] for part in partitions),
        "settings": settings,
    }
    groups = _groups(address, topic, {part["partition"]: part["end"] for part in partitions})
    if as_json:
        say_json(description | {"offsets": partitions, "groups": groups})
        return
    say(f"topic {name}: {counted(description['rows'], 'row')} in {counted(topic.partitions, 'partition')}")
    lines = {"cluster": address.servers, "id": topic.id, "copies": topic.replication}
    lines |= {label: settings[label] for label in _SHOWN if label in settings}
    for label, value in lines.items():
        say(f"{label:<24}{_told(label, str(value))}")
    say()
    say_rows(partitions, ["partition", "start", "end", "rows"])
    if groups:
        say()
        say_rows(groups, ["group", "lag"])


def _told(label: str, value: str) -> str:
    """Return a setting's value for people: durations as such, and no limit as words."""
    if label.startswith("retention"):
        if value == "-1":
            return "for ever" if label.endswith("ms") else "any size"
        return f"{value} ({as_duration(int(value) * _MILLI)})" if label.endswith("ms") else value
    return value


def create_topic(address: KafkaAddress, name: str, options: dict[str, Any], *, as_json: bool) -> None:
    """Create a topic."""
    settings = {_NAMES[option]: _setting(option, options[option]) for option in _NAMES if options[option] is not None}
    if options["cleanup"] is not None:
        settings["cleanup.policy"] = options["cleanup"]
    for text in options["settings"]:
        setting, equals, value = text.partition("=")
        if not equals or not setting:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
        settings[setting] = value
    in_cluster = _in_cluster(address, name)
    if not cluster(address).create(in_cluster, partitions=options["partitions"], settings=settings):
        raise TopicExists(
            f'Kafka at {address.servers} already has a topic "{in_cluster}"',
            hint=f'headrace topics describe {name} --at "{address}"',
        )
    topic = cluster(address).topic(in_cluster)
    if as_json:
        say_json(
            {"topic": name, "id": topic.id, "partitions": topic.partitions, "replication": topic.replication}
            | {"settings": settings}
        )
    else:
        say(f"created topic {name} in Kafka at {address.servers}: {counted(topic.partitions, 'partition')}")


def _setting(option: str, value: str) -> str:
    if value == "none":
        return "-1"
    try:
        return str(as_bytes(value) if option == "retention_bytes" else duration(value) // _MILLI)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"--{option.replace('_', '-')}") from None


def delete_topic(address: KafkaAddress, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a topic, after asking."""
    topic = found(address, name)
    rows = sum(end - start for start, end in spans(address, [topic]).values())
    if not yes:
        note(f"Deleting the topic {topic.name} of Kafka at {address.servers} destroys its {counted(rows, 'row')}.")
        if not sys.stdin.isatty():
            hint = f'headrace topics delete {name} --at "{address}" --yes'
            raise NotConfirmed("nobody can be asked to confirm it", hint=hint)
        click.confirm("Go on?", abort=True, err=True)
    cluster(address).delete(topic.name)
    if as_json:
        say_json({"topic": name, "deleted": True, "rows": rows})
    else:
        say(f"deleted topic {name} and its {counted(rows, 'row')}")


def note_what_times_do(address: KafkaAddress, name: str, oldest: int, *, dated: bool) -> None:
    """Say what becomes of records whose time was given: a topic may ignore it, or remove what is old at once.

    `oldest` is the earliest time that was appended, in microseconds; `dated`: times were given.
    """
    settings = cluster(address).settings(address.cluster_name(name))
    kept = int(settings.get("retention.ms", "-1"))
    if not dated:
        return
    if settings.get("message.timestamp.type") == "LogAppendTime":
        note(f"the topic {name} has the time of arrival (message.timestamp.type): --event-time had no effect")
    elif 0 <= kept < SystemClock().now() // _MILLI - oldest // _MILLI and "delete" in settings["cleanup.policy"]:
        note(
            f"Kafka removes records older than {as_duration(kept * _MILLI)} (retention.ms) from the topic {name}, "
            "and the oldest of these are. Topics created with --retention none keep them."
        )


def _groups(address: KafkaAddress, topic: KafkaTopic, ends: dict[int, int]) -> list[dict[str, Any]]:
    """Return the consumer groups that have read a topic, and how many offsets each has not read."""
    groups = []
    for group in cluster(address).groups():
        read = {at[1]: offset for at, offset in cluster(address).group_offsets(group).items() if at[0] == topic.name}
        if read:
            groups.append({"group": group, "lag": sum(max(0, ends[number] - read.get(number, 0)) for number in ends)})
    return groups
