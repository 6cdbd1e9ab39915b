"""Errors of what is outside: sources, sinks and feeds, the machine, and other processes that run the same app."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.base.blame import OutsideError, PlanError
from headrace.base.disk import file_size_limit
from headrace.base.text import counted
from headrace.base.time import show_duration

if TYPE_CHECKING:
    from collections.abc import Sequence


class Unavailable(OutsideError):
    """What is outside does not answer now, and may later. Connectors raise it to be called again, with back-off."""

    condition = "UNAVAILABLE"
    may_pass: ClassVar[bool] = True


class OffsetsLost(OutsideError):
    """The first records of a range are gone; `earliest` is the first offset that can be read."""

    condition = "OFFSETS_LOST"

    def __init__(self, source: str, partition: str, *, start: int, earliest: int) -> None:
        super().__init__(
            f'"{source}", partition {partition}: the records {start} to {earliest - 1} are gone',
            detail=f"It begins at offset {earliest} now.",
        )
        self.earliest = earliest


class SinkFailed(OutsideError):
    """A sink has failed for so long that the app stops; nothing is lost."""

    condition = "SINK_FAILED"
    may_pass: ClassVar[bool] = True

    def __init__(self, sink: str, *, epoch: int, seconds: float, why: str) -> None:
        super().__init__(
            f"the sink {sink} has not taken epoch {epoch} for {seconds:.0f} seconds: {why}",
            detail=f"Epoch {epoch} is committed, and its rows are staged under the app's storage.",
            hint="Start the app again when the sink answers: it publishes the epoch first, then goes on.",
        )


class FeedRunsElsewhere(OutsideError):
    """Another process fills this topic."""

    condition = "FEED_RUNS_ELSEWHERE"

    def __init__(self, topic: str) -> None:
        super().__init__(f'another process runs the feed of the topic "{topic}"', hint="One process fills a topic.")


class NoReply(OutsideError):
    """A request had no reply in time: `request_id` is its id."""

    condition = "NO_REPLY"

    def __init__(self, topic: str, request_id: str, micros: int) -> None:
        self.request_id = request_id
        super().__init__(
            f'no reply from "{topic}" within {show_duration(micros)}',
            detail=f"The request is durable, and may still be done. Its id is {request_id}.",
            hint="Repeat it under its id, so that it is done once: ask(…, request_id=error.request_id). Is anybody "
            f"answering? headrace topics describe {topic}.replies shows when something was.",
        )


class RequestFailed(OutsideError):
    """A service could not answer a request, and says why: `why`."""

    condition = "REQUEST_FAILED"

    def __init__(self, topic: str, request_id: str, why: str) -> None:
        self.request_id, self.why = request_id, why
        super().__init__(f'"{topic}" could not answer: {why}', detail=f"The id of the request is {request_id}.")


class FeedChanged(PlanError):
    """A topic is filled by another feed than so far, and the position is that of the old one."""

    condition = "FEED_CHANGED"

    def __init__(self, topic: str, *, was: str, now: str, state: str) -> None:
        super().__init__(
            f'the feed of the topic "{topic}" is {now}, and was {was}',
            detail="The position stored with its records is that of the old feed.",
            hint=f"Fill another topic; or remove {state}, and the new feed starts from its beginning.",
        )


class FeedTopicReplaced(OutsideError):
    """The topic that a feed fills was deleted and created again, so the records before the feed's position are gone."""

    condition = "FEED_TOPIC_REPLACED"

    def __init__(self, topic: str, *, state: str) -> None:
        super().__init__(
            f'the topic "{topic}" was deleted and created again since its feed has filled it',
            detail="The feed would go on from its position, and what it landed before would be missing in the topic.",
            hint=f"Restore the old topic; or remove {state}, and the feed starts from its beginning.",
        )


class FeedFailed(OutsideError):
    """A feed cannot go on, so the app stops; what it landed is there."""

    condition = "FEED_FAILED"

    def __init__(self, step: str, feed: str, *, why: str, mend: str = "") -> None:
        super().__init__(
            f'the feed of "{step}" ({feed}) has failed: {why}',
            detail="Everything that it has landed is durable, with its position.",
            hint=mend or "Mend the cause and start again: it goes on from there.",
        )


class SourceChanged(PlanError):
    """A step reads something else than it has read so far."""

    condition = "SOURCE_CHANGED"

    def __init__(self, step: str, *, was: str, now: str) -> None:
        super().__init__(
            f'the source "{step}" is {now}, and was {was}',
            detail="The offsets that the app has read so far are those of the old one.",
            hint="Read the new one under another name, or compute all again: headrace reset FILE --outputs again.",
        )


class SourceReplaced(OutsideError):
    """What a step has read is gone, or was deleted and created again."""

    condition = "SOURCE_REPLACED"

    def __init__(self, what: str, *, gone: bool, read: int | None = None) -> None:
        upto = f" up to {read} offsets" if read else ""
        super().__init__(
            f"{what} is gone" if gone else f"{what} was deleted and created again",
            detail=f"The app has read the old one{upto}: these offsets mean other records now, and would be skipped.",
            hint="Restore the old one; or compute everything again from what is there now: "
            "headrace reset FILE --outputs again.",
        )


class OffsetsBeyondEnd(OutsideError):
    """A source ends before the offset up to which the app has read it: it was restored from an older copy."""

    condition = "OFFSETS_BEYOND_END"

    def __init__(self, source: str, partition: str, *, read: int, end: int) -> None:
        super().__init__(
            f'"{source}", partition {partition}: the app has read up to offset {read}, and it ends at offset {end}',
            detail="It was restored from an older copy, or lost records. New records would get offsets that the app "
            "has read, and be skipped.",
            hint="Restore the newer copy, or an app's storage that is as old as this one; or compute everything again "
            "from what is there now: headrace reset FILE --outputs again.",
        )


class SourceDiverged(OutsideError):
    """A source has other records than those that were read of it: it was restored from an older copy, and has grown."""

    condition = "SOURCE_DIVERGED"

    def __init__(self, source: str, partition: str, *, read: int) -> None:
        super().__init__(
            f'"{source}", partition {partition}: the record before offset {read} is not the one that the app has read',
            detail="It was restored from an older copy, or lost records, and has grown since: new records have offsets "
            "that the app has read, and would be skipped.",
            hint="Restore the newer copy, or an app's storage that is as old as this one; or compute everything again "
            "from what is there now: headrace reset FILE --outputs again.",
        )


class OutputLost(OutsideError):
    """An output topic no longer has what the app has published to it."""

    condition = "OUTPUT_LOST"

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            detail="It was deleted, or restored from an older copy: the app would go on after a gap.",
            hint="Restore the newer copy; or compute everything again from the input: "
            "headrace reset FILE --outputs again; or publish to a topic of another name, and the gap is in none.",
        )


class OutsideBusy(OutsideError):
    """The operating system refused something that it may grant later: memory, open files, a file in use."""

    condition = "OUTSIDE_BUSY"
    may_pass: ClassVar[bool] = True


class DiskFull(OutsideError):
    """A disk is full. Nothing is lost: the epoch that met it was not committed, or is published when there is room."""

    condition = "DISK_FULL"
    may_pass: ClassVar[bool] = True

    def __init__(self, why: str) -> None:
        super().__init__(
            f"a disk is full: {why}",
            detail="What was committed is complete, and the next start goes on from there.",
            hint="Free space on the disk of the storage, of the log and of temporary files; then start the app again.",
        )


class AccessRefused(OutsideError):
    """This user may not do what the app needs: with a file, or as the user who is logged in to a server."""

    condition = "ACCESS_REFUSED"

    @classmethod
    def to_file(cls, file: str, why: str) -> AccessRefused:
        """Return the error of a file that may not be read or written."""
        return cls(
            f"{file} cannot be used: {why}",
            hint="Run it as the user that owns it, allow this user to read and write it, or mount its disk for "
            "writing.",
        )


class FileTooLarge(OutsideError):
    """This process may not write files of the size that is needed. What was committed is complete."""

    condition = "FILE_TOO_LARGE"

    def __init__(self, place: str, why: str) -> None:
        limit = file_size_limit()
        of_process = f"This process may write files of at most {limit} bytes (ulimit -f). " if limit is not None else ""
        super().__init__(
            f"a file may not grow any more in the {place}: {why}",
            detail=f"{of_process}What was committed or acknowledged is complete.",
            hint="Start it again without that limit: ulimit -f unlimited, or LimitFSIZE=infinity of its service.",
        )


class SparkLost(OutsideError):
    """Spark's JVM is gone, or does not answer: it was killed, or its machine was."""

    condition = "SPARK_LOST"
    may_pass: ClassVar[bool] = True

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Spark's JVM does not answer: {why}",
            detail="What was committed is complete, and the next start goes on from there.",
            hint="Start the app again. If it happens again, the machine may lack memory: look for killed processes.",
        )


class SparkNotStarted(OutsideError):
    """Spark's JVM did not start."""

    condition = "SPARK_NOT_STARTED"


class ExecutorsDiffer(OutsideError):
    """The Python of Spark's executors cannot run the app: packages are missing, or folders are not shared."""

    condition = "EXECUTORS_DIFFER"

    def __init__(self, python: str, why: str) -> None:
        super().__init__(
            f"Spark's executors cannot run the app with {python}: {why}",
            detail="They run the app's tasks, so they need the driver's version of Headrace, and the same folders.",
            hint="Set PYSPARK_PYTHON to a Python that has Headrace on every machine, for the driver too; put the "
            "storage and the log on a file system that all of them mount at the same path. See docs/cluster.md.",
        )


class WorkerLost(OutsideError):
    """A Python worker or an executor of Spark did not start in time, or died. The epoch can be computed again."""

    condition = "SPARK_WORKER_LOST"
    may_pass: ClassVar[bool] = True

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Spark lost a worker: {why}",
            detail="What was committed is complete, and the next start goes on from there.",
            hint="Start the app again. If it happens again, the machine is too busy or lacks memory.",
        )


class MayStillRun(OutsideError):
    """The last process that ran the app has not stopped, does not answer, and cannot be fenced."""

    condition = "MAY_STILL_RUN"

    def __init__(self, path: str, *, lease: str, why: str) -> None:
        super().__init__(
            f"the app on the storage {path} may still be run by a process that does not answer",
            detail=f"{why} So that process cannot be kept from committing an epoch.",
            hint=f"Make sure that the other process has ended. Then remove the folder {lease} and start again.",
        )


class Fenced(OutsideError):
    """Another process has taken the app over, so this one stops. What this one had not committed, that one computes."""

    condition = "FENCED"

    def __init__(self, path: str, *, by: str) -> None:
        super().__init__(
            f"the app on the storage {path} is run by another process now" + (f" ({by})" if by else ""),
            detail="It took over while this one did not answer. Nothing is lost, and nothing was done twice.",
            hint="Leave that one running, or stop it before this one is started again.",
        )


class EpochsLost(OutsideError):
    """Epochs were published that the storage does not have, and they cannot be run again."""

    condition = "EPOCHS_LOST"

    def __init__(self, storage: str, *, last: int | None, known: int, why: str) -> None:
        ends = "has no commit" if last is None else f"ends at epoch {last}"
        super().__init__(
            f"the storage {storage} {ends}, and epochs up to {known} were published",
            detail=f"Its newest commits are lost, or it was restored from an older copy; the lost epochs cannot run "
            f"again: {why}. Going on would leave rows out, or publish them twice.",
            hint="Restore storage and log from one backup: headrace restore DIR. Or compute everything again from the "
            "topics: headrace reset FILE --outputs again",
        )


class ResetRefused(OutsideError):
    """A step cannot be reset now: epochs are lost, and a reset would take from them what they need to run again."""

    condition = "RESET_REFUSED"

    def __init__(self, step: str, *, last: int | None, known: int) -> None:
        ends = "has no commit" if last is None else f"ends at epoch {last}"
        super().__init__(
            f'the step "{step}" cannot be reset: the storage {ends}, and epochs up to {known} were published',
            detail="The next start recovers the lost epochs, or runs them again, with the state as it is now. Nothing "
            "was reset.",
            hint="Start the app once, with the program that ran last, and reset the step then. Or compute everything "
            "again from the topics: headrace reset FILE --outputs again",
        )


class OutputsNotKept(OutsideError):
    """A whole reset cannot keep what output topics have: it is not known, or not there, what the app has read."""

    condition = "OUTPUTS_NOT_KEPT"

    def __init__(self, app: str, *, why: str, first: str = "") -> None:
        super().__init__(
            f'app "{app}" cannot be reset and its output topics be kept: {why}',
            detail="To keep them, everything is computed again up to the offsets that the app has read, and only what "
            "comes after them is appended. Nothing was reset.",
            hint=f"{first}Or read from the start and append again to the output topics: "
            "headrace reset FILE --outputs again",
        )


class SinkBehind(OutsideError):
    """A sink does not have epochs that were published to it."""

    condition = "SINK_BEHIND"

    def __init__(self, sink: str, *, has: int, given: int) -> None:
        has_text = "no epoch" if has < 0 else f"epochs up to {has}"
        super().__init__(
            f"the sink {sink} has {has_text}, and epoch {given} was published to it",
            detail="It was restored from an older copy, or removed. Going on would leave rows out.",
            hint="Views: headrace verify FILE --repair builds them anew. Else restore storage and log from one backup: "
            "headrace restore DIR. Or compute everything again from the topics: headrace reset FILE "
            "--outputs again",
        )


class AppDamaged(OutsideError):
    """Something that an app owns is not as it was written; `findings` say what."""

    condition = "DAMAGED"

    def __init__(self, storage: str, findings: Sequence[str], *, mend: str) -> None:
        more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        super().__init__(
            f"the storage {storage} or its log is damaged in {counted(len(findings), 'place')}",
            detail="; ".join(findings[:_SHOWN]) + more,
            hint=mend,
        )


_SHOWN = 3


class BackupRefused(OutsideError):
    """A backup cannot be made or restored as it was asked; nothing was changed."""

    condition = "BACKUP_REFUSED"
