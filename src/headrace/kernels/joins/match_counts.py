"""How many rows of a side of a join each value has: whether a row of the other side meets any, without looking at them.

A value that half of the rows have is one row here, so a row that comes or goes costs the same whatever it meets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.groups.grouped import by_position
from headrace.kernels.state.state import COUNT, alike

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.joins.sides import Side
    from headrace.kernels.state.state import State

MATCH_CHANGED = "(p_old = 0) <> (p_new = 0)"
"""The values of which rows came where none were, or of which none is left."""


def tallied(duck: Duck, side: Side, state: State, moved: list[str], asked: list[str]) -> str:
    """Bring a tally up to date; return the temporary table of its part that the epoch looks at.

    `moved` is SQL for the columns `on`, `n` (how many more) and `_when`; `asked` for values to look at beside. The
    table has `on`, the counts `p_old` and `p_new`, and `_when` they changed. Null has no rows, and stands for none.
    """
    name = f"join_{side.letter}_tally"
    on, kinds = list(side.on), dict(side.columns)
    known = " AND ".join(f"{column} IS NOT NULL" for column in on)
    rows = " UNION ALL ".join([*moved, *(f"SELECT *, 0::BIGINT AS n, NULL::BIGINT AS _when FROM ({a})" for a in asked)])
    sums = (
        f"SELECT {', '.join(on)}, sum(n)::BIGINT AS n, max(_when) AS _when FROM ({rows}) WHERE {known} "
        f"{by_position(on)}"
    )
    near = state.lookup(side.tally, on, f"({rows})")
    before = f"coalesce(s.{COUNT}, 0)"
    counts = f"{before} AS p_old, greatest({before} + d.n, 0)::BIGINT AS p_new"
    when = "CASE WHEN d.n <> 0 THEN d._when END AS _when"
    duck.run(
        f"CREATE OR REPLACE TEMP TABLE {name} AS "
        f"SELECT {', '.join(f'd.{column}' for column in on)}, {counts}, {when}, s.rowid AS o_row "
        f"FROM ({sums}) d LEFT JOIN {near} s ON {alike('d', 's', on, nulls=())}"
    )
    kept = [f"{column}::{kinds[column]} AS {column}" for column in on]
    changed = duck.arrow(f"SELECT {', '.join(kept)}, p_new AS {COUNT}, o_row FROM {name} WHERE p_new <> p_old")
    state.replace(side.tally, changed, at="o_row")
    return name
