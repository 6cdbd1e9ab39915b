"""Changing a topic's description: one process at a time, durably, completely or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base import schema as schemas
from headrace.base.disk import sync_folder
from headrace.base.errors import ChangeFailed, InvalidTopic, did_you_mean
from headrace.log import evolution
from headrace.log import meta as metas
from headrace.log.privacy import subjects as privacy
from headrace.log.segments import payload as payloads
from headrace.log.segments.head import BOOT, FILE_SIZE, PartitionState, new_head
from headrace.log.segments.partition import HEAD_NAME
from headrace.log.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.log.meta import Meta
    from headrace.log.open_topic import OpenTopic
    from headrace.log.privacy.subjects import Origin


def alter(topic: OpenTopic, settings: Mapping[str, Any]) -> None:
    """Change settings of a topic; values are as for `Log.create_topic`."""
    for name in settings:
        if name not in SETTINGS:
            raise InvalidTopic(
                f'topic "{topic.name}": there is no setting "{name}" to alter',
                detail=f"The settings are: {', '.join(SETTINGS)}.",
                hint=_other_way(name) or did_you_mean(name, SETTINGS),
            )
    values = {name: SETTINGS[name](value) for name, value in settings.items()}
    with _locked(topic) as meta:
        _put(topic, meta, replace(meta, **values).check())


def _other_way(name: str) -> str:
    ways = {
        "schema": "Topic.evolve changes the schema.",
        "partitions": "Topic.add_partitions adds some.",
        "key": "The key never changes: it decides where records are.",
        "event_time": "The event time never changes: the index is built from it.",
        "name": "The name never changes.",
        "private": "Private columns never change: records are stored that way.",
    }
    return ways.get(name, "")


def evolve(topic: OpenTopic, schema: str | pa.Schema, defaults: Mapping[str, object]) -> list[str]:
    """Give a topic a new schema and return a text for each change."""
    new = schemas.as_schema(schema)
    with _locked(topic) as meta:
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
            _put(topic, meta, after.check())
    return changed


def add_partitions(topic: OpenTopic, total: int) -> None:
    """Give a topic more partitions; they exist, empty and durable, before the description counts them."""
    with _locked(topic) as meta:
        after = replace(meta, partitions=total).check()
        if total < meta.partitions:
            raise InvalidTopic(
                f'topic "{meta.name}" has {meta.partitions} partitions, and none can be removed',
                hint=f"The total must be at least {meta.partitions}.",
            )
        for number in range(meta.partitions, total):
            _make_partition(topic.folder / str(number), fsync=topic.log.fsync)
        if topic.log.fsync:
            sync_folder(topic.folder)
        _put(topic, meta, after)


def mark_sealed(topic: OpenTopic, columns: Iterable[str], origins: Iterable[Origin]) -> None:
    """Mark columns of a topic as holding values that these topics have sealed: reading it asks them for their keys."""
    meta = topic.meta()
    named = {(origin.log, origin.topic, origin.id) for origin in origins}
    sealed, owners = tuple(sorted({*meta.sealed, *columns})), tuple(sorted({*meta.origins, *named}))
    if (sealed, owners) == (meta.sealed, meta.origins):
        return
    with _locked(topic) as meta:
        _put(topic, meta, replace(meta, sealed=sealed, origins=owners).check())


def give_up_lost(topic: OpenTopic) -> dict[int, range]:
    """Give up acknowledged records that the last segment of a partition lost; return their offsets by partition."""
    meta = topic.meta()
    nothing = pa.Table.from_pylist([], schema=meta.schema).append_column(
        pa.field("_offset", pa.int64()), pa.array([], pa.int64())
    )
    now = topic.log.clock.now()
    (gap,) = payloads.encode(nothing, event_time=meta.event_time, now=now)
    given_up = {}
    for number in range(meta.partitions):
        try:
            lost = topic.writer(number).give_up(gap, schema=len(meta.schemas), time=now)
        except OSError as error:
            raise ChangeFailed(topic.name, str(topic.folder), error) from error
        if lost:
            given_up[number] = lost
    topic.close()  # what is open may still be of the time before
    return given_up


def _make_partition(folder: Path, *, fsync: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that died here: nothing was ever appended to it
    folder.mkdir()
    with (folder / HEAD_NAME).open("wb") as head:
        head.write(new_head(PartitionState(boot=BOOT))[:FILE_SIZE])
        head.flush()
        if fsync:
            os.fsync(head.fileno())
    if fsync:
        sync_folder(folder)


@contextmanager
def _locked(topic: OpenTopic) -> Iterator[Meta]:
    """Hold the topic against others that change it, and return its description as it is now.

    Raises:
        LogClosed: the log was closed.
        TopicDeleted: the topic is gone.
        ChangeFailed: the disk refused.

    """
    topic.meta()  # raises where there is nothing to lock
    fd = os.open(topic.folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield topic.file.current()
    except OSError as error:
        raise ChangeFailed(topic.name, str(topic.folder), error) from error
    finally:
        os.close(fd)


def _put(topic: OpenTopic, before: Meta, after: Meta) -> None:
    if after == before:
        return
    metas.write(topic.folder, after, fsync=topic.log.fsync)
    if topic.log.fsync:
        sync_folder(topic.folder)
