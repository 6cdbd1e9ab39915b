"""Operators without parentheses: which of them bind closer, as in Spark and not as in other dialects of SQL."""

import pytest
from adversaries import SCHEMA
from comparison import differences

from headrace.base.errors import WrongType
from headrace.expressions import scalar

TEXTS = """
i | j & 3
i & 3 | j
i ^ j & 7
i & 6 ^ j
i | j ^ 5
b | 1 << 3
b & 7 << 1
b << 1 & 7
b << 1 << 2
b >> 1 << 2
i << 2 + 1
i + 1 << 2
-i & 3 | ~j
b + 1 | 3
i & 7 = 3
i | 7 > j
'1' || 2 + b
b + 1 || s
b - 1 || s
2 * b || s
s || '' = s
s || t like 'a%'
s || t in ('ab', 'b')
i = j is null
i > j is not null
i = j > p
i < j = p
i < j <=> p
not p = q
not i between 1 and 3
i between j & 3 and j | 8
i = 1 or i = 2 and p
i = 1 and not j = 2
i + j is null
p and q is null
s like any ('a%', '%b')
s like some ('a%', null)
s like all ('a%', '%b')
s not like any ('a%', '%b')
s not like all ('a%', t)
s like any ('a%') and p
s ilike any ('A%', '%B')
s not ilike all ('A%', '%B')
"""


@pytest.mark.spark
def test_operators_bind_as_in_spark(rivals):
    found = differences(rivals, [(text, 0) for text in TEXTS.strip().splitlines()])
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["p = i < j", "p = i in (1, 2)"])
def test_comparisons_are_read_from_left_to_right(text):
    """As in Spark, `p = i` is compared first, and has no common type."""
    with pytest.raises(WrongType, match='"p = i"'):
        scalar(text, SCHEMA, step="bound")
