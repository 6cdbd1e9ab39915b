"""The column `_source`: where in the database a record comes from; it is there if the program declares it."""

from __future__ import annotations

import pyarrow as pa

from headrace.base.schema import TIMESTAMP

SOURCE = "_source"
SOURCE_TYPE = pa.struct({"position": pa.string(), "transaction": pa.string(), "committed": TIMESTAMP})
"""The place in the database's log, the transaction, and when it was committed; null for rows of a snapshot."""
DELETED = "_deleted"
