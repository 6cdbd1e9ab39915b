"""Chunks and kept sessions as sorted spans: which make one session is plain from neighbours, without SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.kernels.arrays import room
from headrace.kernels.groups.accumulated import folds, folds_of, narrow_sums
from headrace.kernels.groups.chunks import runs_of
from headrace.kernels.groups.grouping import tables
from headrace.kernels.groups.run_groups import run_groups
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.groups.chunks import Runs
    from headrace.kernels.groups.grouping import Grouping

    Flags = np.ndarray[Any, np.dtype[np.bool_]]

FROM = 1
"""From so many spans on: SQL takes longer for any number of them."""
_WIDE = pa.decimal128(38, 0)


@dataclass(frozen=True)
class Merged:
    """What chunks make of the kept sessions: the open ones that they form, and those that these replace.

    `changed` are the rows that take their place in the state, with the replaced row in `o_row`. `lost` are the chunks
    that are in no open session.
    """

    new: pa.Table
    old: pa.Table
    changed: pa.Table
    lost: pa.Table


def covers(grouping: Grouping) -> bool:
    """Return whether sessions' accumulators can be put together without SQL."""
    return folds(grouping)


def chunks(grouping: Grouping, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the partial groups of several tasks as spans from `_pane` to `_last`.

    Raises:
        pa.ArrowInvalid: a sum has more than 64 bits.

    """
    keys = [f"k{i}" for i in range(len(grouping.keys))]
    columns = [*keys, "_pane", "_time", COUNT, *(f"p{i}" for i in range(len(grouping.accumulators)))]
    spans = pa.concat_tables([narrow_sums(part.select(columns), grouping) for part in parts])
    return spans.rename_columns(["_last" if name == "_time" else name for name in columns])


def merged(grouping: Grouping, fresh: pa.Table, kept: pa.Table | None, *, open_from: int | None) -> Merged | None:
    """Return what chunks make of the kept sessions that they may reach; None where SQL has to find it.

    Args:
        grouping: what is grouped.
        fresh: the chunks.
        kept: the kept sessions, with their row in the state as `o_row`; None where there are none.
        open_from: the least last time of an open session; None where all are open.

    Raises:
        pa.ArrowInvalid: a sum has more than 64 bits.

    """
    assert grouping.session is not None  # noqa: S101 -- this file is for sessions
    spans = fresh.append_column("o_row", pa.nulls(len(fresh), pa.int64()))
    if kept is not None and len(kept):
        spans = pa.concat_tables([spans, narrow_sums(kept.select(spans.column_names), grouping)])
    if len(spans) < FROM or spans.nbytes > room():
        return None
    keys = [f"k{i}" for i in range(len(grouping.keys))]
    runs = runs_of(spans, keys, first="_pane", last="_last", gap=grouping.session.gap)
    if runs is None:
        return None
    groups = run_groups(runs, spans.append_column("_at", spans["_last"]), folds_of(grouping, spans), counts=COUNT)
    if groups is None:
        return None
    groups = groups.rename_columns(["_last" if name == "_time" else name for name in groups.column_names])
    is_fresh = spans["o_row"].is_null().to_numpy()
    formed = np.logical_or.reduceat(is_fresh[runs.order], runs.begins)
    if open_from is not None:
        formed &= groups["_last"].to_numpy() >= open_from
    return _replaced(grouping, spans, groups, runs, formed)


def _replaced(grouping: Grouping, spans: pa.Table, groups: pa.Table, runs: Runs, formed: Flags) -> Merged:
    """Return the sessions that are formed, and what they replace: a session that begins with a kept one takes its row.

    Args:
        grouping: what is grouped.
        spans: chunks and kept sessions.
        groups: what they make together, in the order of the runs.
        runs: the runs of the spans.
        formed: which of these are formed now.

    """
    new = _wide(groups if formed.all() else groups.filter(pa.array(formed)), grouping)
    is_fresh = spans["o_row"].is_null().to_numpy()
    taken = np.ones(len(spans), np.bool_) if formed.all() else runs.of_rows(formed.astype(np.int64)) > 0
    lost = spans.filter(pa.array(is_fresh & ~taken)) if not taken.all() else spans.slice(0, 0)
    if is_fresh.all():
        return Merged(new, new.slice(0, 0), new.append_column("o_row", pa.nulls(len(new), pa.int64())), lost)
    is_old = ~is_fresh & taken
    old = _wide(spans.filter(pa.array(is_old)), grouping)
    places = runs.of_rows(np.cumsum(formed) - 1)[is_old]
    same = old["_pane"].to_numpy() == new["_pane"].to_numpy()[places]
    rows = np.full(len(new), -1, np.int64)
    rows[places[same]] = old["o_row"].to_numpy()[same]
    changed = new.append_column("o_row", pa.array(rows, mask=rows < 0))
    return Merged(new, old, pa.concat_tables([changed, _removed(old.filter(pa.array(~same)), changed.schema)]), lost)


def _removed(old: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows that remove kept sessions from the state."""
    stays = {name for name in old.column_names if name[0] == "k"} | {"_pane", "o_row"}
    columns = [old[field.name] if field.name in stays else pa.nulls(len(old), field.type) for field in schema]
    columns[schema.get_field_index(COUNT)] = pa.array(np.zeros(len(old), np.int64))
    return pa.table(columns, schema=schema)


def _wide(sessions: pa.Table, grouping: Grouping) -> pa.Table:
    """Return sessions with the columns of the state in their types there."""
    wide = {name for name, kind in tables(grouping)[0].kinds if kind == "HUGEINT"}
    for at, name in enumerate(sessions.column_names):
        if name in wide:
            sessions = sessions.set_column(at, name, sessions[name].cast(_WIDE))
    return sessions
