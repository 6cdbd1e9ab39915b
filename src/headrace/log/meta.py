"""The description of a topic: one small file with a checksum, always replaced as a whole, and a copy of it.

Without it no record can be read, so there are two: where one is damaged or missing, the other serves. The next change
of the topic writes both again.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base import schema as schemas
from headrace.base.crc import crc32
from headrace.base.errors import CorruptBatch, InvalidTopic, NewerFormat, TopicDeleted, did_you_mean
from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ
from headrace.base.time import MICROS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_NAME = "topic.json"
COPY_NAME = "topic.json.copy"
_LATER = {"private", "sealed", "origins"}  # written only if not empty: earlier releases do not know them
CLEANUPS = ("delete", "compact")
MAX_PARTITIONS = 10_000
SEGMENT_AGE = 7 * 86_400 * MICROS  # so that retention of some days does not wait until a segment is full
DELETE_RETENTION = 24 * 3_600 * MICROS


@dataclass(frozen=True, kw_only=True)
class Meta:
    """A topic's description. Schemas are DDL text; the last one is current, and each frame names its own by number."""

    id: str
    name: str
    partitions: int
    key: tuple[str, ...]
    event_time: str | None
    retention: int | None  # microseconds
    cleanup: str
    schemas: tuple[str, ...]
    created: int
    defaults: dict[str, Any] = field(default_factory=dict)  # by added column, as JSON values
    format: int = 1
    retention_bytes: int | None = None  # of one partition
    delete_retention: int = DELETE_RETENTION  # microseconds
    archive: str | None = None  # an absolute path
    archive_after: int | None = None  # microseconds
    private: dict[str, str] = field(default_factory=dict)  # private column: column of its subject
    sealed: tuple[str, ...] = ()  # columns with values that are private to other topics
    origins: tuple[tuple[str, str, str], ...] = ()  # of these topics: log (empty: the same log), name, id

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the current schema."""
        return self.schema_of(len(self.schemas))

    def schema_of(self, number: int) -> pa.Schema:
        """Return one of the topic's schemas, numbered from 1."""
        return _parsed(self.schemas[number - 1])

    @property
    def segment_age(self) -> int:
        """Return how long after its first record a segment is closed even if it is not full, in microseconds."""
        return min([SEGMENT_AGE, *(age for age in (self.retention, self.archive_after) if age is not None)])

    def check(self) -> Meta:
        """Return this description if it is possible.

        Raises:
            InvalidTopic: it is not.

        """
        names = self.schema.names
        for column, what in [*((name, "key") for name in self.key), (self.event_time, "event_time")]:
            if column is not None and column not in names:
                raise InvalidTopic(
                    f'topic "{self.name}": the {what} column "{column}" is not in the schema',
                    detail=f"Its columns are: {', '.join(names)}.",
                    hint=did_you_mean(column, names),
                )
        if self.event_time is not None and self.schema.field(self.event_time).type not in (TIMESTAMP, TIMESTAMP_NTZ):
            kind = schemas.type_name(self.schema.field(self.event_time).type)
            raise self._wrong(f'event_time is "{self.event_time}", a {kind}', "It must be a timestamp column.")
        if len(set(self.key)) < len(self.key):
            raise self._wrong("a key column is named twice")
        if self.cleanup not in CLEANUPS:
            raise self._wrong(f'cleanup is "{self.cleanup}"', f"It is one of {', '.join(CLEANUPS)}.")
        self._check_keeping()
        self._check_private()
        if isinstance(self.partitions, bool) or not isinstance(self.partitions, int):
            raise self._wrong(f"partitions is {self.partitions!r}, not a number")
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise self._wrong(f"{self.partitions} partitions are not possible", f"Possible are 1 to {MAX_PARTITIONS}.")
        return self

    def _check_keeping(self) -> None:
        """Check the settings for how long records are kept."""
        if self.cleanup == "compact" and not self.key:
            raise self._wrong("compaction keeps the last record of each key, but there is no key", "Set key=….")
        for name in self.key if self.cleanup == "compact" else ():
            if not _is_comparable(self.schema.field(name).type):
                kind = schemas.type_name(self.schema.field(name).type)
                raise self._wrong(
                    f'the key column "{name}" is a {kind}', "Arrays and maps cannot be keys of a compacted topic."
                )
        for name in ("retention", "retention_bytes", "delete_retention", "archive_after"):
            value = getattr(self, name)
            absent = value is None and name != "delete_retention"
            if not absent and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise self._wrong(f"{name} is {value!r}", "It must not be negative.")
        if self.archive_after is not None and self.archive is None:
            raise self._wrong("archive_after is set, but archive is not", "Set archive=FOLDER.")

    def _check_private(self) -> None:
        """Check private columns: tokens must fit their type, and nothing but reading may need their values."""
        for name, subject in self.private.items():
            for column, what in ((name, "private"), (subject, "subject's")):
                if column not in self.schema.names:
                    raise self._wrong(
                        f'the {what} column "{column}" is not in the schema', did_you_mean(column, self.schema.names)
                    )
            found, whose = self.schema.field(name), self.schema.field(subject).type
            kind = schemas.type_name(found.type)
            if not (pa.types.is_string(found.type) or pa.types.is_binary(found.type)):
                raise self._wrong(
                    f'the private column "{name}" is a {kind}', "Only string and binary columns can be private."
                )
            if not found.nullable:
                raise self._wrong(f'the private column "{name}" is not null', "Forgotten values are null: allow nulls.")
            if name in self.key:
                raise self._wrong(f'the private column "{name}" belongs to the key', "Records are found by their key.")
            if subject in self.private:
                raise self._wrong(
                    f'the subject\'s column "{subject}" is private itself', "Forgetting finds the key by it."
                )
            if not (pa.types.is_integer(whose) or pa.types.is_string(whose) or pa.types.is_binary(whose)):
                kind = schemas.type_name(whose)
                raise self._wrong(
                    f'the subject\'s column "{subject}" is a {kind}', "It must be text, bytes or an integer."
                )

    def _wrong(self, what: str, hint: str = "") -> InvalidTopic:
        return InvalidTopic(f'topic "{self.name}": {what}', hint=hint)


def _is_comparable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_comparable(field.type) for field in kind)
    return not pa.types.is_nested(kind)


@lru_cache(maxsize=256)
def _parsed(ddl: str) -> pa.Schema:
    return schemas.parse(ddl)


def write(folder: Path, meta: Meta, *, fsync: bool = False) -> None:
    """Write the description, atomically; with `fsync` its content is on disk before its name is.

    The modification time is always later than before: `MetaFile` notices the change by it.
    """
    body = {name: value for name, value in asdict(meta).items() if value or name not in _LATER}
    checksum = crc32(json.dumps(body, indent=1).encode())
    text = json.dumps({"checksum": checksum, "topic": body}, indent=1)
    for name in (COPY_NAME, FILE_NAME):  # the copy first: it is never older
        draft = folder / (FILE_NAME + ".draft")
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            _make_later(file.fileno(), folder / FILE_NAME)
            if fsync:
                os.fsync(file.fileno())
        draft.replace(folder / name)


def _make_later(fd: int, than: Path) -> None:
    before = than.stat().st_mtime_ns if than.exists() else 0
    if os.fstat(fd).st_mtime_ns <= before:
        os.utime(fd, ns=(before + 1_000_000, before + 1_000_000))


def exists(folder: Path) -> bool:
    """Tell whether a folder has a description, or its copy."""
    return (folder / FILE_NAME).exists() or (folder / COPY_NAME).exists()


def missing(folder: Path) -> CorruptBatch:
    """Return the error for a topic's folder without a description."""
    return CorruptBatch(
        f'the description of the topic "{folder.name}" is missing',
        detail=f"The folder {folder} has neither {FILE_NAME} nor {COPY_NAME}. Its records cannot be read without it.",
        hint=f"Restore {FILE_NAME} from a copy; or, to give its records up, move the folder away.",
    )


def flaws(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with a topic's description and its copy, by file; one of them may serve nevertheless."""
    for path in (folder / FILE_NAME, folder / COPY_NAME):
        try:
            _read(path)
        except FileNotFoundError:
            if path.name == FILE_NAME:  # topics of earlier releases have no copy
                yield path, f"the description is missing ({COPY_NAME} is used)"
        except CorruptBatch:
            yield path, "the description is damaged (the other one is used)"


def read(path: Path) -> Meta:
    """Read a description, or its copy where it is missing or damaged.

    Raises:
        FileNotFoundError: there is none.
        CorruptBatch: it is damaged, and the copy too or there is none.
        NewerFormat: a later release wrote it.

    """
    try:
        return _read(path)
    except (FileNotFoundError, CorruptBatch) as error:
        try:
            return _read(path.with_name(COPY_NAME))
        except (FileNotFoundError, CorruptBatch):
            raise error from None


def _read(path: Path) -> Meta:
    """Read a description.

    Raises:
        FileNotFoundError: there is none.
        CorruptBatch: it is damaged.
        NewerFormat: a later release wrote it.

    """
    raw = path.read_bytes()
    try:
        body = _checked(json.loads(raw))
        unknown = sorted(body.keys() - {field.name for field in fields(Meta)})
        if not unknown:
            listed = {name: tuple(body.get(name, ())) for name in ("key", "schemas", "sealed")}
            return Meta(**{**body, **listed, "origins": tuple(map(tuple, body.get("origins", ())))})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorruptBatch(f"the topic's description {path} is damaged", hint="Restore the file from a copy.") from None
    raise NewerFormat(
        f"the topic's description {path} was written by a later Headrace",
        detail=f"This one does not know: {', '.join(unknown)}.",
        hint="Upgrade Headrace.",
    )


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = content["topic"]
    if crc32(json.dumps(body, indent=1).encode()) != content["checksum"]:
        raise ValueError("checksum")
    return body


class MetaFile:
    """The description in a file; it is read again after another process replaced it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE_NAME
        self._last: tuple[tuple[int, int], Meta] | None = None  # (inode, modification time), description

    def last_read(self) -> Meta:
        """Return the description as it was last read; reads it if it never was."""
        last = self._last
        return last[1] if last is not None else self.current()

    def current(self) -> Meta:
        """Return the description as it is now.

        Raises:
            TopicDeleted: the topic was deleted, perhaps created again.

        """
        last = self._last
        try:
            found = self._stat()
            seen = found.st_ino, found.st_mtime_ns
            if last is not None and seen == last[0]:
                return last[1]
            meta = read(self._path)
        except (FileNotFoundError, NotADirectoryError):
            if self.folder.is_dir():
                raise missing(self.folder) from None
            raise TopicDeleted(
                f'the topic "{self.folder.name}" was deleted', hint="Ask the log for its topics again."
            ) from None
        if last is not None and meta.id != last[1].id:
            raise TopicDeleted(
                f'the topic "{meta.name}" was deleted and created again', hint="Ask the log for it again."
            )
        self._last = seen, meta
        return meta

    def _stat(self) -> os.stat_result:
        try:
            return os.stat(self._path)  # noqa: PTH116 - a third of the time of Path.stat, at every call
        except FileNotFoundError:
            return self._path.with_name(COPY_NAME).stat()
