"""Errors of the log and its topics; `base.errors` exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.blame import OutsideError, PlanError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 5


class InvalidTopic(PlanError):
    """The description of a topic is not possible: a key column that does not exist, no partitions."""

    condition = "INVALID_TOPIC"


class TopicExists(PlanError):
    """A topic is created under a name that is taken."""

    condition = "TOPIC_EXISTS"


class SchemaRefused(PlanError):
    """A topic cannot take a new schema, because its records could not be read under it."""

    condition = "SCHEMA_REFUSED"

    def __init__(self, topic: str, differences: Sequence[str], *, old: str, new: str) -> None:
        super().__init__(
            f'topic "{topic}" cannot take the schema: {"; ".join(differences)}',
            detail=f"Its schema: {old}. The new one: {new}.",
            hint="Columns can be added, widened, and allowed to be null. For anything else create another topic.",
        )


class UnknownTopic(PlanError):
    """The log has no topic of this name."""

    condition = "UNKNOWN_TOPIC"

    def __init__(self, name: str, *, log: str, topics: Sequence[str]) -> None:
        suggestion = did_you_mean(name, topics)
        create = f'Create it: Log("{log}").create_topic("{name}", "id bigint, at timestamp").'
        super().__init__(
            f'the log "{log}" has no topic "{name}"',
            detail=f"Its topics are: {', '.join(topics)}." if topics else "It has no topics yet.",
            hint=f"{suggestion} {create}".strip(),
        )


class TopicDeleted(OutsideError):
    """A topic was deleted, perhaps by another process, while this one used it."""

    condition = "TOPIC_DELETED"


class OffsetOutOfRange(PlanError):
    """A partition no longer has the requested records, or does not have them yet."""

    condition = "OFFSET_OUT_OF_RANGE"


class CorruptBatch(OutsideError):
    """Bytes on disk are not those that were written: nothing of the batch is served."""

    condition = "CORRUPT_BATCH"


class RecordsLost(CorruptBatch):
    """The last segment of a partition is missing or shortened: acknowledged records are gone."""

    condition = "RECORDS_LOST"

    def __init__(self, topic: str, partition: int, offsets: range, *, folder: str) -> None:
        super().__init__(
            f'topic "{topic}", partition {partition}: the acknowledged records at offsets {offsets.start} to '
            f"{offsets.stop - 1} are gone",
            detail=f"The last segment in the folder {folder} is missing or shortened. Nothing was appended.",
            hint=f"Restore it from a copy; or give these records up, and go on after them: headrace topics repair "
            f"{topic}",
        )


class NewerFormat(OutsideError):
    """A file was written by a later release, and has fields that this one does not know."""

    condition = "NEWER_FORMAT"


class ArchiveMissing(OutsideError):
    """The folder to which old segments were moved is missing: not mounted, or moved."""

    condition = "ARCHIVE_MISSING"

    def __init__(self, topic: str, partition: int, *, folder: str) -> None:
        super().__init__(
            f'topic "{topic}", partition {partition}: the archive folder "{folder}" is missing',
            detail="Old segments of the topic were moved to it; newer records can be read without it.",
            hint="Mount or restore the folder under this path, then read again.",
        )


class AppendFailed(OutsideError):
    """The disk refused an append; nothing of it is in the log, and the log can be read and appended to."""

    condition = "APPEND_FAILED"
    may_pass = True


class ChangeFailed(OutsideError):
    """The disk refused to create or change a topic; nothing was changed."""

    condition = "CHANGE_FAILED"

    def __init__(self, topic: str, folder: str, error: OSError) -> None:
        super().__init__(
            f'the topic "{topic}" cannot be created or changed: {error.strerror or error}',
            detail=f"Folder {folder}; nothing was changed.",
            hint="Free disk space or repair the disk, then try again.",
        )


class DiskFailed(OutsideError):
    """The disk refused to read or to write a file of a log; the log is as it was."""

    condition = "DISK_FAILED"
    may_pass = True

    def __init__(self, place: str, error: OSError) -> None:
        named = f" ({error.filename})" if error.filename else ""
        super().__init__(
            f"the disk failed for the {place}: {error.strerror or error}{named}",
            detail="The log is as it was: what was acknowledged is there, as far as the disk still has it.",
            hint="Mount the disk, free space, allow the access or repair it, then try again; then check the files: "
            "headrace topics verify",
        )


class ProducerClosed(PlanError):
    """A producer is used after `close`, or one that numbers its rows after one of them could not be appended."""

    condition = "PRODUCER_CLOSED"


class RecordDropped(OutsideError):
    """A producer dropped a record because its buffer was full and `on_full` says so."""

    condition = "RECORD_DROPPED"

    def __init__(self, on_full: str, limit: int) -> None:
        super().__init__(
            f'the record was dropped: {limit} records waited for the disk, and on_full is "{on_full}"',
            hint='Send less, give a larger max_unacknowledged, or on_full="block" or "spill", which lose nothing.',
        )


class CleaningFailed(OutsideError):
    """The disk refused while old records were dropped, compacted or archived; the topic is as it was before."""

    condition = "CLEANING_FAILED"


class UnknownSubject(PlanError):
    """A subject cannot be forgotten, because the topic never had a private value of it."""

    condition = "UNKNOWN_SUBJECT"


class KeysMissing(OutsideError):
    """The keys of private columns are in a log that is missing."""

    condition = "KEYS_MISSING"


class LogClosed(PlanError):
    """A log, or a topic of it, is used after `close`."""

    condition = "LOG_CLOSED"


class LeaseLost(OutsideError):
    """A worker answers for records of a queue whose lease had run out: others have them, or had them.

    `places`: the partition and offset of each, once; the others were answered.
    """

    condition = "LEASE_LOST"

    def __init__(self, topic: str, what: str, places: Sequence[tuple[int, int]], of: int) -> None:
        self.places = tuple(places)
        shown = _listed([f"partition {partition} offset {offset}" for partition, offset in places])
        super().__init__(
            f'{len(places)} of {of} records of the queue "{topic}" were not {what}: the lease had run out',
            detail=f"They are {shown}. Another worker has them, or has finished them.",
            hint="Undo what was done for them, or see that doing it twice does no harm. Take fewer at a time, give "
            'log.queue(…, lease="…") more time, or renew the lease while you work.',
        )


class MemberFenced(OutsideError):
    """A member of a consumer group was away for too long, and others have its partitions: `places`."""

    condition = "MEMBER_FENCED"

    def __init__(self, group: str, places: Sequence[tuple[str, int]]) -> None:
        self.places = tuple(places)
        shown = _listed([f"{topic}/{partition}" for topic, partition in places])
        super().__init__(
            f'this member of the group "{group}" does not own {shown} any more: nothing was committed',
            detail="It gave no sign of life within its session, or did not call poll in time. The partitions went to "
            "other members, which read on from the last commit.",
            hint="Call poll again: it joins the group anew. Others do again what was done since the last commit.",
        )


class UnknownGroup(PlanError):
    """The log has no group of consumers and no queue of this name."""

    condition = "UNKNOWN_GROUP"

    def __init__(self, name: str, suggestion: str) -> None:
        super().__init__(
            f'there is no group "{name}"',
            hint=f"{suggestion} A group is there once somebody is a member: log.consumer(…), log.queue(…).".strip(),
        )


class GroupInUse(PlanError):
    """A group of consumers cannot begin elsewhere while it has members."""

    condition = "GROUP_IN_USE"

    def __init__(self, name: str, members: Sequence[str]) -> None:
        super().__init__(
            f'the group "{name}" has {len(members)} members, which would commit over it',
            hint="Stop them first; or let them call consumer.seek.",
        )


class GroupElsewhere(OutsideError):
    """Members of a group or queue run on another machine, which shares the log's folder."""

    condition = "GROUP_ELSEWHERE"

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"{folder} is used by processes of another machine",
            detail="Sessions and leases are measured by the clock of one machine, and so cannot be shared.",
            hint="Run all members on one machine; or keep the topics in Kafka, whose groups span machines.",
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
