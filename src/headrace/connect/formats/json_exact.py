"""JSON records to columns by the rules alone, one by one: where numba is not installed, or not worth importing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.connect.formats.json_values import BadValue, converter, record
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from headrace.connect.format import Formatted


def exact(values: pa.Array, schema: pa.Schema) -> Formatted:
    """Return records as rows by the rules alone, one by one: what `Scanned` must agree with."""
    verdicts = Verdicts(len(values))
    convert = {field.name: converter(field.type) for field in schema}
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row, value in enumerate(values.cast(pa.binary()).to_pylist()):
        try:
            found = record(value)
        except BadValue as error:
            verdicts.refuse_each({row: str(error)})
            found = {}
        for name, column in columns.items():
            try:
                column.append(convert[name](found.get(name)))
            except BadValue as error:
                column.append(None)
                verdicts.refuse_each({row: error.reason(name)})
    return verdicts.formatted([pa.array(columns[field.name], field.type) for field in schema], schema.names)
