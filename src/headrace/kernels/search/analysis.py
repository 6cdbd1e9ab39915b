"""Texts as terms: one analysis, of documents and of the words of queries, so that they can agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.duck import Duck

WORD = r"[\p{L}\p{M}\p{N}_]+"
"""A term: letters, marks, digits and underscores that follow each other."""


def terms_sql(text: str) -> str:
    """Return SQL for the terms of a text, in their order: composed (NFC), case folded, cut at all that is in no word.

    Case is folded by upper case and then lower case, letter by letter: so the sigmas are one letter.
    """
    whole = f"replace({text}, chr(0), ' ')"  # NFC ends a text at NUL, which is in no word
    composed = f"CASE WHEN strlen({text}) = length({text}) THEN {text} ELSE nfc_normalize({whole}) END"
    return f"regexp_extract_all(lower(upper({composed})), '{WORD}')"


def analysed(duck: Duck, texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the terms of each text."""
    distinct = pa.table({"t": pa.array(dict.fromkeys(texts), pa.string())})
    found = duck.arrow(f"SELECT t, {terms_sql('t')} AS terms FROM {duck.register(distinct)}")
    return dict(zip(found.column("t").to_pylist(), found.column("terms").to_pylist(), strict=True))
