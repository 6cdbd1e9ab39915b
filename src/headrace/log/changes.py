"""Changing what a topic is: one process at a time, durably, and whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.base import schema as schemas
from headrace.base.disk import sync_folder
from headrace.base.errors import ChangeFailed, InvalidTopic, did_you_mean
from headrace.log import evolution
from headrace.log import meta as metas
from headrace.log.meta import SETTINGS, Meta, MetaFile
from headrace.log.privacy import subjects as privacy
from headrace.log.segments.head import BOOT, FILE_SIZE, Slot, fresh
from headrace.log.segments.partition import HEAD_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.log.privacy.subjects import Origin
    from headrace.log.topic import Topic


def alter(file: MetaFile, settings: Mapping[str, Any], *, fsync: bool) -> None:
    """Change settings of a topic, given as for `Log.create_topic`."""
    for name in settings:
        if name not in SETTINGS:
            raise InvalidTopic(
                f'topic "{file.folder.name}": there is no setting "{name}" to alter',
                detail=f"The settings are: {', '.join(SETTINGS)}.",
                hint=_other_way(name) or did_you_mean(name, SETTINGS),
            )
    given = {name: SETTINGS[name](value) for name, value in settings.items()}
    with _locked(file) as meta:
        _put(file, meta, replace(meta, **given).check(), fsync=fsync)


def _other_way(name: str) -> str:
    ways = {
        "schema": "Topic.evolve changes the schema.",
        "partitions": "Topic.add_partitions adds some.",
        "key": "The key is for ever: it says where records are.",
        "event_time": "The event time is for ever: the index is made of it.",
        "name": "The name is for ever.",
        "private": "Which columns are private is for ever: records are stored that way.",
    }
    return ways.get(name, "")


def evolve(file: MetaFile, schema: str | pa.Schema, defaults: Mapping[str, object], *, fsync: bool) -> list[str]:
    """Give a topic a new schema and return in words what changed."""
    new = schemas.as_schema(schema)
    with _locked(file) as meta:
        privacy.keep_subjects(meta, new)
        changed = evolution.compare(meta.schema, new, topic=meta.name, key=meta.key, defaults=defaults)
        fresh_defaults = {
            name: evolution.as_json(name, value, new.field(name), topic=meta.name)
            for name, value in defaults.items()
            if value is not None
        }
        after = replace(
            meta, schemas=(*meta.schemas, schemas.to_ddl(new)), defaults={**meta.defaults, **fresh_defaults}
        )
        if changed:
            _put(file, meta, after.check(), fsync=fsync)
    return changed


def add_partitions(file: MetaFile, total: int, *, fsync: bool) -> None:
    """Give a topic more partitions; they are there, empty and durable, before the topic says so."""
    with _locked(file) as meta:
        after = replace(meta, partitions=total).check()
        if total < meta.partitions:
            raise InvalidTopic(
                f'topic "{meta.name}" has {meta.partitions} partitions, and none is taken away',
                hint=f"Give a total from {meta.partitions} on.",
            )
        for number in range(meta.partitions, total):
            _make_partition(file.folder / str(number), fsync=fsync)
        if fsync:
            sync_folder(file.folder)
        _put(file, meta, after, fsync=fsync)


def hold(topic: Topic, columns: Iterable[str], origins: Iterable[Origin]) -> None:
    """Mark columns of a topic as holding values that these topics have sealed: reading it asks them for their keys."""
    known = topic._meta()  # noqa: SLF001 - a mark is no setting of the user's
    given = {(origin.log, origin.topic, origin.id) for origin in origins}
    wanted = tuple(sorted({*known.sealed, *columns})), tuple(sorted({*known.origins, *given}))
    if wanted == (known.sealed, known.origins):
        return
    with _locked(topic._open_file()) as meta:  # noqa: SLF001 - the same
        _put(
            topic._open_file(),  # noqa: SLF001 - the same
            meta,
            replace(meta, sealed=wanted[0], origins=wanted[1]).check(),
            fsync=topic._log.fsync,  # noqa: SLF001 - the same
        )


def _make_partition(folder: Path, *, fsync: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of somebody who died at it: nothing was ever appended there
    folder.mkdir()
    with (folder / HEAD_NAME).open("wb") as head:
        head.write(fresh(Slot(boot=BOOT))[:FILE_SIZE])
        head.flush()
        if fsync:
            os.fsync(head.fileno())
    if fsync:
        sync_folder(folder)


@contextmanager
def _locked(file: MetaFile) -> Iterator[Meta]:
    """Hold the topic against others that change it, and give its description as it is now.

    Raises:
        TopicDeleted: it is gone.
        ChangeFailed: the disk refused.

    """
    file.current()  # of a topic that is gone, the error says so
    fd = os.open(file.folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield file.current()
    except OSError as error:
        raise ChangeFailed(file.folder.name, str(file.folder), error) from error
    finally:
        os.close(fd)


def _put(file: MetaFile, before: Meta, after: Meta, *, fsync: bool) -> None:
    if after == before:
        return
    metas.write(file.folder, after, fsync=fsync)
    if fsync:
        sync_folder(file.folder)
