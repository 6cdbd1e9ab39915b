"""Which records are good, and why the others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.format import Formatted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Array = np.ndarray[Any, Any]


class Verdicts:
    """Collects reasons by record; of several reasons the first counts."""

    def __init__(self, records: int) -> None:
        self.codes = np.full(records, -1, np.int64)
        self.texts: list[str] = []

    def refuse(self, records: Array, reason: str) -> None:
        """Refuse the records that a mask marks, all for one reason."""
        marked = records & (self.codes < 0)
        if marked.any():
            self.codes[marked] = len(self.texts)
            self.texts.append(reason)

    def refuse_each(self, reasons: Mapping[int, str]) -> None:
        """Refuse records by their numbers."""
        for record, reason in reasons.items():
            if self.codes[record] < 0:
                self.codes[record] = len(self.texts)
                self.texts.append(reason)

    def add(self, read: Formatted) -> None:
        """Refuse what another decoder of the same records refused."""
        rows = np.flatnonzero(~np.asarray(read.good))
        if len(rows):
            self.refuse_each(dict(zip(rows.tolist(), read.reasons.take(pa.array(rows)).to_pylist(), strict=True)))

    def formatted(self, columns: Sequence[pa.Array], names: Sequence[str]) -> Formatted:
        """Return the good rows of columns that have a row for each record."""
        bad = self.codes >= 0
        good = pa.array(~bad)
        if not self.texts:
            reasons = pa.nulls(len(bad), pa.string())
            return Formatted(pa.RecordBatch.from_arrays(list(columns), names=list(names)), good, reasons)
        reasons = pa.array(self.texts, pa.string()).take(pa.array(self.codes, mask=~bad))
        return Formatted(
            pa.RecordBatch.from_arrays([pc.filter(column, good) for column in columns], names=list(names)),
            good,
            reasons,
        )
