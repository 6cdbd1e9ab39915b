"""What a topic is: one small file, replaced as a whole, with a checksum."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from headrace.base import schema as schemas
from headrace.base.errors import CorruptBatch, InvalidTopic, NewerFormat, TopicDeleted, did_you_mean
from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ
from headrace.base.time import MICROS

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "topic.json"
_LATER = {"private", "sealed", "origins"}  # written where they say something: earlier releases read the others
CLEANUPS = ("delete", "compact")
MAX_PARTITIONS = 10_000
SEGMENT_AGE = 7 * 86_400 * MICROS  # so that what is kept for some days does not wait for a segment to be full
DELETE_RETENTION = 24 * 3_600 * MICROS


@dataclass(frozen=True, kw_only=True)
class Meta:
    """A topic's description; schemas are DDL text, the last one is in force, frames say which one they have."""

    id: str
    name: str
    partitions: int
    key: tuple[str, ...]
    event_time: str | None
    retention: int | None  # microseconds
    cleanup: str
    schemas: tuple[str, ...]
    created: int
    defaults: dict[str, Any] = field(default_factory=dict)  # by column that was added, as JSON can say them
    format: int = 1
    retention_bytes: int | None = None  # of one partition
    delete_retention: int = DELETE_RETENTION  # microseconds
    archive: str | None = None  # an absolute path
    archive_after: int | None = None  # microseconds
    private: dict[str, str] = field(default_factory=dict)  # the column of the subject, by private column
    sealed: tuple[str, ...] = ()  # columns with values that are private to other topics
    origins: tuple[tuple[str, str, str], ...] = ()  # these: log (empty: the same), name, id

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema in force."""
        return self.schema_of(len(self.schemas))

    def schema_of(self, number: int) -> pa.Schema:
        """Return one of the topic's schemas; they count from 1."""
        return _parsed(self.schemas[number - 1])

    @property
    def segment_age(self) -> int:
        """Return how long after its first record a segment is closed though it is not full, in microseconds."""
        return min([SEGMENT_AGE, *(age for age in (self.retention, self.archive_after) if age is not None)])

    def check(self) -> Meta:
        """Return this description if it makes sense.

        Raises:
            InvalidTopic: it does not.

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
            raise self._wrong("a key column stands twice")
        if self.cleanup not in CLEANUPS:
            raise self._wrong(f'cleanup is "{self.cleanup}"', f"It is one of {', '.join(CLEANUPS)}.")
        self._check_keeping()
        self._check_private()
        if isinstance(self.partitions, bool) or not isinstance(self.partitions, int):
            raise self._wrong(f"partitions is {self.partitions!r}, not a number")
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise self._wrong(f"{self.partitions} partitions are not possible", f"From 1 to {MAX_PARTITIONS} are.")
        return self

    def _check_keeping(self) -> None:
        """Check what is said about how long records stay."""
        if self.cleanup == "compact" and not self.key:
            raise self._wrong("compaction keeps the last record of each key, but there is no key", "Give key=....")
        for name in self.key if self.cleanup == "compact" else ():
            if not _is_comparable(self.schema.field(name).type):
                kind = schemas.type_name(self.schema.field(name).type)
                raise self._wrong(f'the key column "{name}" is a {kind}', "Compaction takes no arrays or maps as keys.")
        for name in ("retention", "retention_bytes", "delete_retention", "archive_after"):
            value = getattr(self, name)
            absent = value is None and name != "delete_retention"
            if not absent and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise self._wrong(f"{name} is {value!r}", "Give one that is not negative.")
        if self.archive_after is not None and self.archive is None:
            raise self._wrong("archive_after says when, but no archive says where", "Give archive=FOLDER.")

    def _check_private(self) -> None:
        """Check what is said about private columns: their tokens must fit, and nothing but reading may need them."""
        for name, subject in self.private.items():
            for column, what in ((name, "private"), (subject, "subject's")):
                if column not in self.schema.names:
                    raise self._wrong(
                        f'the {what} column "{column}" is not in the schema', did_you_mean(column, self.schema.names)
                    )
            found, whose = self.schema.field(name), self.schema.field(subject).type
            kind = schemas.type_name(found.type)
            if not (pa.types.is_string(found.type) or pa.types.is_binary(found.type)):
                raise self._wrong(f'the private column "{name}" is a {kind}', "Only string and binary columns can be.")
            if not found.nullable:
                raise self._wrong(f'the private column "{name}" is not null', "What is forgotten is null: allow it.")
            if name in self.key:
                raise self._wrong(f'the private column "{name}" belongs to the key', "Records are found by their key.")
            if subject in self.private:
                raise self._wrong(
                    f'the subject\'s column "{subject}" is private itself', "It finds the key to destroy."
                )
            if not (pa.types.is_integer(whose) or pa.types.is_string(whose) or pa.types.is_binary(whose)):
                kind = schemas.type_name(whose)
                raise self._wrong(f'the subject\'s column "{subject}" is a {kind}', "It is text, bytes or an integer.")

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
    """Put the description in place, atomically; with `fsync` its content is on disk before its name is.

    Its time on disk is later than that of the one before, by which `MetaFile` knows it from that.
    """
    body = {name: value for name, value in asdict(meta).items() if value or name not in _LATER}
    text = json.dumps(body, indent=1)
    draft = folder / (FILE_NAME + ".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"checksum": crc32(text.encode()), "topic": body}, indent=1))
        file.flush()
        _make_later(file.fileno(), folder / FILE_NAME)
        if fsync:
            os.fsync(file.fileno())
    draft.replace(folder / FILE_NAME)


def _make_later(fd: int, than: Path) -> None:
    before = than.stat().st_mtime_ns if than.exists() else 0
    if os.fstat(fd).st_mtime_ns <= before:
        os.utime(fd, ns=(before + 1_000_000, before + 1_000_000))


def read(path: Path) -> Meta:
    """Read a description.

    Raises:
        FileNotFoundError: there is none.
        CorruptBatch: it is not what was written.
        NewerFormat: a later release wrote it.

    """
    raw = path.read_bytes()
    try:
        body = _checked(json.loads(raw))
        unknown = sorted(body.keys() - {field.name for field in fields(Meta)})
        if not unknown:
            listed = {name: tuple(body.get(name, ())) for name in ("key", "schemas", "sealed")}
            return Meta(**{**body, **listed, "origins": tuple(map(tuple, body.get("origins", ())))})
    except (ValueError, KeyError, TypeError):
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
    """A description that follows its file: read again when another process has replaced it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE_NAME
        self._last: tuple[tuple[int, int], Meta] | None = None  # what the file was known by, and what it said

    def last_read(self) -> Meta:
        """Return the description as of the last look at it; looks where there was none."""
        last = self._last
        return last[1] if last is not None else self.current()

    def current(self) -> Meta:
        """Return the description as it is now.

        Raises:
            TopicDeleted: the topic is gone, or another one stands in its place.

        """
        last = self._last
        try:
            found = os.stat(self._path)  # noqa: PTH116 - a third of the time of Path.stat, at every call
            seen = found.st_ino, found.st_mtime_ns
            if last is not None and seen == last[0]:
                return last[1]
            meta = read(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise TopicDeleted(
                f'the topic "{self.folder.name}" was deleted', hint="Ask the log for its topics again."
            ) from None
        if last is not None and meta.id != last[1].id:
            raise TopicDeleted(
                f'the topic "{meta.name}" was deleted and created anew', hint="Ask the log for it again."
            )
        self._last = seen, meta
        return meta
