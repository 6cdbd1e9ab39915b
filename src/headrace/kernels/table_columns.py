"""The columns of a table by its key, under the names that kernels give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.state.tables import Column


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table's key and its other columns; inside, keys are `k0…` and values `v0…`.

    Each is its name inside, its own name, and its type.
    """

    keys: tuple[tuple[str, str, str], ...]
    values: tuple[tuple[str, str, str], ...]

    @staticmethod
    def of(columns: Sequence[Column], keys: Sequence[str]) -> TableColumns:
        """Return the columns of a table by its key."""
        kinds = dict(columns)
        others = [name for name, _ in columns if name not in keys]
        return TableColumns(
            keys=tuple((f"k{i}", name, kinds[name]) for i, name in enumerate(keys)),
            values=tuple((f"v{i}", name, kinds[name]) for i, name in enumerate(others)),
        )
