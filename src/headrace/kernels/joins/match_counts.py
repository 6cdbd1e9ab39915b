"""How many rows of a side of a join each value has: whether a row of the other side has a match, without reading rows.

A value that half of the rows have is one row here, so a changed row costs the same however many it matches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.sql import alike, by_position
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.joins.sides import TableSide
    from headrace.kernels.state.state import State

MATCH_CHANGED = "(p_old = 0) <> (p_new = 0)"
"""The values that have a row now and had none, or the other way round."""


def update_value_counts(duck: Duck, side: TableSide, state: State, changes: list[str], probes: list[str]) -> str:
    """Bring the counts of a side's values up to date; return the name of those that the epoch looks at.

    `changes` is SQL for the columns `on`, `n` (how many more) and `_when`; `probes` for further values to look up. The
    table has `on`, the counts `p_old` and `p_new`, and `_when` they changed. Null has no rows and is left out.
    """
    on, kinds = list(side.on), dict(side.columns)
    not_null = " AND ".join(f"{column} IS NOT NULL" for column in on)
    rows = " UNION ALL ".join(
        [*changes, *(f"SELECT *, 0::BIGINT AS n, NULL::BIGINT AS _when FROM ({p})" for p in probes)]
    )
    sums = (
        f"SELECT {', '.join(on)}, sum(n)::BIGINT AS n, max(_when) AS _when FROM ({rows}) WHERE {not_null} "
        f"{by_position(on)}"
    )
    kept = state.lookup(side.value_counts, on, f"({rows})")
    before = f"coalesce(s.{COUNT}, 0)"
    counts = f"{before} AS p_old, greatest({before} + d.n, 0)::BIGINT AS p_new"
    when = "CASE WHEN d.n <> 0 THEN d._when END AS _when"
    name = duck.register_large(
        f"SELECT {', '.join(f'd.{column}' for column in on)}, {counts}, {when}, s.rowid AS o_row "
        f"FROM ({sums}) d LEFT JOIN {kept} s ON {alike('d', 's', on, nulls=())}"
    )
    typed = [f"{column}::{kinds[column]} AS {column}" for column in on]
    changed = duck.arrow(f"SELECT {', '.join(typed)}, p_new AS {COUNT}, o_row FROM {name} WHERE p_new <> p_old")
    state.replace(side.value_counts, changed, at="o_row")
    return name
