"""Comparing Spark's answers with ours, value for value, type for type, error for error."""

import math
import struct
from collections import defaultdict

from adversaries import SCHEMA, rows

from headrace.base.errors import PlanError
from headrace.expressions import scalar


def ulps(one, other):
    """How many doubles lie between two."""
    if one == other:
        return 0
    a, b = (struct.unpack("<q", struct.pack("<d", x))[0] for x in (one, other))
    return abs((a if a >= 0 else -(2**63) - a) - (b if b >= 0 else -(2**63) - b))


def same(one, other, *, ulp=0):
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return repr(one) == repr(other) or (math.isfinite(one) and math.isfinite(other) and 0 < ulps(one, other) <= ulp)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and one == other


def differences(rivals, examples):
    """Compare (text, ulp) pairs; return one line for each text that differs."""
    spark, duck = rivals
    groups = defaultdict(list)
    found = []
    for text, ulp in examples:
        try:
            expression = scalar(text, SCHEMA, step="example")
        except PlanError as error:
            found.append(f"{text}: {error}")
            continue
        groups[tuple(name for name in SCHEMA.names if name in expression.columns)].append((text, ulp, expression))
    for columns, members in groups.items():
        table = rows(columns)
        duck.load(table)
        theirs = spark.evaluate(table, [text for text, _, _ in members])
        for (text, ulp, expression), (answer, kind) in zip(members, theirs, strict=True):
            ours, our_kind = duck.evaluate(expression)
            if our_kind != kind:
                found.append(f"{text}: Spark has {kind}, we have {our_kind}")
            bad = [row for row in range(len(answer)) if not same(answer[row], ours[row], ulp=ulp)]
            if bad:
                row = {
                    name: table.column(name)[bad[0]].as_py()
                    if name not in ("at", "at2", "ntz")
                    else str(table.column(name)[bad[0]])
                    for name in columns
                }
                found.append(f"{text}: {len(bad)} rows; {row}: Spark {answer[bad[0]]!r}, ours {ours[bad[0]]!r}")
    return found
