"""What may change between two declarations of a view, whatever the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import ViewChanged
from headrace.base.schema import type_name, wider_integer

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.views.store import Key


def check_same(name: str, stored: tuple[pa.Schema, Key], declared: tuple[pa.Schema, Key]) -> None:
    """Refuse a view whose columns, types or key have changed.

    Their order and `not null` may change, and an integer may become a wider one.

    Raises:
        ViewChanged: they have.

    """
    (stored_schema, stored_key), (schema, key) = stored, declared
    before, after = ({field.name: type_name(field.type) for field in fields} for fields in (stored_schema, schema))
    differences = [
        *(f'the column "{each}" is new' for each in after if each not in before),
        *(f'the column "{each}" is gone' for each in before if each not in after),
        *(
            f'the column "{each}" was {before[each]} and is now {after[each]}'
            for each in after
            if each in before and before[each] != after[each] and not wider_integer(before[each], after[each])
        ),
    ]
    if key != stored_key:
        differences.append(f"the key was {_key_text(stored_key)} and is now {_key_text(key)}")
    if differences:
        raise ViewChanged(name, differences=differences)


def _key_text(key: Key) -> str:
    return "none" if key is None else f"({', '.join(key)})"
