"""What is searched for in the rows of keys, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.row_functions import RowFunctions

KEPT, STARTS = "kept", "starts"
MATCH = "_headrace_match"
"""The number of a match, by which its rows are grouped."""
BITS = "_headrace_bits"
"""The column with the symbols that a row meets."""
ROW, SYMBOL = "_headrace_row", "_headrace_symbol"
"""What measures read besides the columns: the number of a row in its match, and that of its symbol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPattern:
    """A pattern of rows, and what is computed of a match.

    `functions` computes of each row the symbols that it meets, as bits. `kept` are the columns, by number, that are
    read of matches. An automaton has a symbol for each place, and the places that follow each, the preferred first; the
    last are those of the first row. `grouping` are the measures, by match.
    """

    functions: RowFunctions
    kept: tuple[int, ...]
    symbols: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]
    within: int
    overlapping: bool
    grouping: Grouping

    @property
    def columns(self) -> list[str]:
        """The names inside of the keys, and of what is read of matches."""
        key = self.functions.key
        return [*self.functions.keys, *(f"c{i}" for i in self.kept if i not in key)]
