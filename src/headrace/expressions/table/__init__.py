"""The table of translations: every function and operator that expressions know, by family.

A family is a file with a tuple `ENTRIES`. To add a function, add an entry with examples: the differential test
against Spark and the reference page follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions.table import (
    arithmetic,
    arrays,
    bits,
    collections,
    comparison,
    conditionals,
    dates,
    encodings,
    hashes,
    json,
    json_reading,
    json_writing,
    lambdas,
    logic,
    maps,
    moments,
    patterns,
    rounding,
    spark_hashes,
    spark_names,
    strings,
    text_parts,
    texts,
    times,
    trigonometry,
    types,
    zones,
)
from headrace.expressions.table.aggregates import AGGREGATES

if TYPE_CHECKING:
    from headrace.expressions.functions import Function

__all__ = ["AGGREGATES", "FAMILIES", "TABLE", "spark_names"]

FAMILIES: dict[str, tuple[Function, ...]] = {
    "Arithmetic": (*arithmetic.ENTRIES, *rounding.ENTRIES, *trigonometry.ENTRIES, *bits.ENTRIES),
    "Comparison and logic": (*comparison.ENTRIES, *logic.ENTRIES),
    "Conditionals, nulls, types": (*conditionals.ENTRIES, *types.ENTRIES),
    "Text": (*strings.ENTRIES, *texts.ENTRIES, *text_parts.ENTRIES),
    "Patterns": patterns.ENTRIES,
    "Dates": dates.ENTRIES,
    "Timestamps": (*times.ENTRIES, *moments.ENTRIES, *zones.ENTRIES),
    "Arrays, maps, structs": (*collections.ENTRIES, *arrays.ENTRIES, *maps.ENTRIES),
    "Functions over elements": lambdas.ENTRIES,
    "JSON": (*json.ENTRIES, *json_reading.ENTRIES, *json_writing.ENTRIES),
    "Hashes and encodings": (*hashes.ENTRIES, *spark_hashes.ENTRIES, *encodings.ENTRIES),
}


def _by_name() -> dict[str, tuple[Function, ...]]:
    table: dict[str, tuple[Function, ...]] = {}
    for family in FAMILIES.values():
        for function in family:
            for name in function.names:
                table[name] = (*table.get(name, ()), function)
    return table


TABLE = _by_name()
