"""The keys of rows as texts, for stores whose entries have one text as their key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.formats.json_text import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NULL = "%null"
_BETWEEN = ":"


def entry_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.Array:
    """Return the key of each row as text: different keys have different texts.

    Columns are joined by `:`. Null is `%null`; a `%` in a text is `%25`, and where there are several columns a `:` is
    `%3A`.
    """
    texts = []
    for name in key:
        text = pc.replace_substring(text_of(rows.column(name)), "%", "%25")
        texts.append(pc.fill_null(pc.replace_substring(text, _BETWEEN, "%3A") if len(key) > 1 else text, NULL))
    return pc.binary_join_element_wise(*texts, pa.scalar(_BETWEEN))
