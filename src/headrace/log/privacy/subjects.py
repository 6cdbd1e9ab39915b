"""Private columns of a topic: sealed on the way in, unsealed on the way out, forgotten by the subject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import (
    HeadraceError,
    InvalidRows,
    InvalidTopic,
    KeysMissing,
    SchemaRefused,
    UnknownSubject,
    did_you_mean,
)
from headrace.base.schema import to_ddl, type_name
from headrace.log import meta as metas
from headrace.log.privacy import sealing
from headrace.log.privacy.keyfile import KeyFile
from headrace.log.rows import to_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.log.meta import Meta
    from headrace.log.privacy.keyfile import Subject

_MISFITS = (pa.ArrowException, ArithmeticError, ValueError, TypeError, HeadraceError)


class Origin(NamedTuple):
    """A topic that has keys: its log (empty for the same log), its name and its id."""

    log: str
    topic: str
    id: str


class Privacy:
    """Seals and unseals the private columns of a topic, and those with sealed values of other topics."""

    def __init__(self, folder: Path, meta: Meta, *, fsync: bool) -> None:
        self._folder = folder
        self._id = meta.id
        self._keys = KeyFile(folder, meta.id, fsync=fsync)

    def seal(self, table: pa.Table, meta: Meta, *, sealed: bool = False) -> pa.Table:
        """Return records as they are stored; with `sealed` they have tokens already.

        Raises:
            InvalidRows: a value should be a token, but is not.
            AppendFailed: the disk refused a new key.

        """
        if meta.sealed:
            sealing.refuse_unsealed(table, meta.sealed, [origin[2] for origin in meta.origins], topic=meta.name)
        if not meta.private:
            return table
        if sealed:
            sealing.refuse_unsealed(table, meta.private, [meta.id], topic=meta.name)
            return table
        refuse_without_subject(table, meta.private)
        return sealing.seal(table, meta.private, meta.id, self._keys)

    def unseal(self, batches: Iterator[pa.RecordBatch], meta: Meta, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the values of their private columns, null where their subject was forgotten meanwhile."""
        wanted = [name for name in columns if name in meta.private or name in meta.sealed]
        if not wanted:
            return batches
        origins = origins_of(meta, self._folder.parents[1])
        return (sealing.unseal(batch, wanted, lambda topic: secrets_of(origins, topic)) for batch in batches)

    def forget(self, meta: Meta, subject: object, column: str | None) -> int:
        """Destroy a subject's keys and return how many there were."""
        found = self._keys.forget(_subjects(meta, subject, column))
        if found == (0, 0):
            raise UnknownSubject(
                f'the topic "{meta.name}" never had a private value of the subject {subject!r}',
                detail=f"Subject columns: {', '.join(sorted({*meta.private.values()}))}. Nothing was destroyed.",
                hint="Check the subject, and look in the other topics that have it.",
            )
        return found.destroyed


def _subjects(meta: Meta, subject: object, column: str | None) -> list[Subject]:
    columns = sorted(set(meta.private.values()))
    if not columns:
        raise InvalidTopic(
            f'the topic "{meta.name}" has no private columns, so it has no keys to destroy',
            hint='Topics are created with them: Log.create_topic(…, private={"email": "user_id"}).',
        )
    if column is not None and column not in columns:
        raise InvalidTopic(
            f'the column "{column}" of the topic "{meta.name}" is not a subject column',
            detail=f"Subject columns: {', '.join(columns)}.",
            hint=did_you_mean(column, columns),
        )
    subjects = []
    for name in columns if column is None else [column]:
        try:
            text = sealing.texts(to_array([subject], meta.schema.field(name).type))[0]
        except _MISFITS:
            continue
        subjects += [] if text is None else [(name, text)]
    if not subjects:
        kinds = ", ".join(f"{name} {type_name(meta.schema.field(name).type)}" for name in columns)
        raise InvalidRows(f"{subject!r} is not a subject of the topic {meta.name}", detail=f"Subjects are: {kinds}.")
    return subjects


# ---- whose keys ----------------------------------------------------------------------------------------


def origins_of(meta: Meta, log: Path) -> dict[str, Origin]:
    """Return the topics whose keys open the columns of a topic, by id, with the paths of their logs."""
    own = [Origin(str(log), meta.name, meta.id)] if meta.private else []
    others = [Origin(path or str(log), topic, key) for path, topic, key in meta.origins]
    return {origin.id: origin for origin in (*own, *others)}


def key_owners(meta: Meta) -> list[Origin]:
    """Return the topics whose keys open the columns of a topic; an empty log is the topic's own."""
    own = [Origin("", meta.name, meta.id)] if meta.private else []
    return [*own, *(Origin(*origin) for origin in meta.origins)]


def unseal_table(table: pa.Table, columns: Iterable[str], origins: Mapping[str, Origin]) -> pa.Table:
    """Return rows with the values of their sealed columns, null where the subject was forgotten.

    Raises:
        KeysMissing: the log that has the keys is missing.

    """
    wanted = [name for name in columns if name in table.column_names]
    if not wanted or not table.num_rows:
        return table
    batches = [sealing.unseal(batch, wanted, lambda key: secrets_of(origins, key)) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema=table.schema)


def secrets_of(origins: Mapping[str, Origin], topic: str) -> Mapping[bytes, bytes | None] | None:
    """Return the keys of a topic by its id; None if it was deleted, which destroyed all keys.

    Raises:
        KeysMissing: its log is missing, or no topic of this id is known.
        CorruptBatch: its key file is damaged.

    """
    origin = origins.get(topic)
    if origin is None:
        raise KeysMissing(
            f"a sealed value belongs to an unknown topic, of id {topic}",
            hint="Read it through the topic, the app or the view that it was written to.",
        )
    topics = Path(origin.log) / "topics"
    if not topics.is_dir():
        raise KeysMissing(
            f'the log {origin.log} is missing: its topic "{origin.topic}" has the keys of the private values',
            hint="Mount or restore it under this path, then read again.",
        )
    try:
        found = metas.read(topics / origin.topic / metas.FILE_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _keys(topics / origin.topic, topic).secrets() if found.id == topic else None


def destroyed_in(origin: Origin) -> int:
    """Return how often keys of a topic were destroyed; -1 where it was deleted, which destroyed all.

    Raises:
        OSError: its log cannot be read.
        CorruptBatch: its key file is damaged.

    """
    folder = Path(origin.log) / "topics" / origin.topic
    try:
        found = metas.read(folder / metas.FILE_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return _keys(folder, origin.id).destroyed() if found.id == origin.id else -1


@lru_cache(maxsize=64)
def _keys(folder: Path, topic: str) -> KeyFile:
    return KeyFile(folder, topic, fsync=True)  # to read


# ---- rules ---------------------------------------------------------------------------------------------


def as_private(private: object, key: str | Sequence[str] | None, *, topic: str) -> dict[str, str]:
    """Return the subject column of each private column; `private` is as for `Log.create_topic`.

    Raises:
        InvalidTopic: it is something else.

    """
    if private is None:
        return {}
    if isinstance(private, Mapping):
        subject_of = dict(private)
    else:
        names = [private] if isinstance(private, str) else list(private) if isinstance(private, list | tuple) else [0]
        keys = [key] if isinstance(key, str) else list(key or ())
        if names and len(keys) != 1:
            raise InvalidTopic(
                f'topic "{topic}": there is no subject column for the private columns, and the key is not one column',
                hint='Name the subject column: private={"email": "user_id"}.',
            )
        subject_of = dict.fromkeys(names, keys[0] if keys else "")
    if not all(isinstance(part, str) for pair in subject_of.items() for part in pair):
        raise InvalidTopic(
            f'topic "{topic}": private is {private!r}', hint='Write it like private={"email": "user_id"}.'
        )
    return subject_of


def refuse_without_subject(table: pa.Table, private: Mapping[str, str]) -> None:
    """Refuse rows with a private value but no subject: the value could never be forgotten.

    Raises:
        InvalidRows: there is such a row.

    """
    for name, subject in private.items():
        if not table.column(subject).null_count:
            continue
        nobodys = pc.and_(pc.is_null(table.column(subject)), pc.is_valid(table.column(name)))
        at = pc.index(nobodys, value=True).as_py()
        if at >= 0:
            raise InvalidRows(
                f'rows[{at}] has a private value in "{name}", but its subject "{subject}" is null',
                hint=f'Set "{subject}" in the row, or leave out "{name}".',
            )


def keep_subjects(meta: Meta, new: pa.Schema) -> None:
    """Refuse a schema under which the text of subjects would change: their keys would not be found again.

    Raises:
        SchemaRefused: a subject column would get another type; integers may widen.

    """
    for name in sorted(set(meta.private.values())):
        old, wanted = meta.schema.field(name).type, new.field(name).type if name in new.names else None
        if wanted not in (None, old) and not pa.types.is_integer(wanted):
            why = f'the subject column "{name}" cannot become {type_name(wanted)}'
            raise SchemaRefused(meta.name, [why], old=to_ddl(meta.schema), new=to_ddl(new))
