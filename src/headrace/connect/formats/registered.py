"""What formats have in common whose records may be framed with the number of a schema in a registry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connect.format import Format

if TYPE_CHECKING:
    from typing import Self

    from headrace.connect.formats.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredFormat(Format):
    """Records that are bytes, with a schema that a registry may have."""

    registry: Registry | None = None
    subject: str | None = None

    def bound(self, topic: str, *, key: bool = False) -> Self:
        """Return the format with the subject of a topic's records (TopicNameStrategy), unless it has one."""
        if self.subject is not None or self.registry is None:
            return self
        return replace(self, subject=f"{topic}-{'key' if key else 'value'}")

    def stored_type(self, schema: pa.Schema) -> pa.DataType:
        """Bytes."""
        del schema
        return pa.binary()
