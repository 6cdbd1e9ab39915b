"""Every aggregate of the expressions has a kernel, over rows that are only added and over rows that are withdrawn."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.engine.lowering import lower
from headrace.expressions.table import AGGREGATES
from headrace.kernels.aggregates.accumulators import ACCUMULATED
from headrace.kernels.aggregates.multisets import EXTREMES, FROM_MULTISET
from headrace.kernels.groups.merge import Merge

SKETCHES = {"approx_count_distinct", "approx_percentile", "percentile_approx", "approx_top_k"}
CALLS = {
    "min_by": "min_by(x, y)",
    "max_by": "max_by(x, y)",
    **{name: f"{name}(x, y)" for name in AGGREGATES if name.startswith(("covar", "corr", "regr"))},
    "percentile": "percentile(x, 0.5)",
    "percentile_cont": "percentile_cont(0.5) within group (order by x)",
    "percentile_disc": "percentile_disc(0.5) within group (order by x)",
    "approx_percentile": "approx_percentile(x, 0.5)",
    "percentile_approx": "percentile_approx(x, 0.5)",
    **{name: f"{name}(x > 0)" for name in ("count_if", "bool_and", "every", "bool_or", "any", "some")},
}
COLUMNS = "id bigint, k string, x bigint, y bigint"


@pytest.mark.parametrize("name", sorted(AGGREGATES))
@pytest.mark.parametrize("withdrawn", [False, True], ids=["rows are only added", "rows are withdrawn"])
def test_an_aggregate_has_a_kernel(name, withdrawn):
    if withdrawn and name in SKETCHES:
        pytest.skip("nothing can be taken out of a sketch")
    app = hr.App("one")
    rows = app.table("t", COLUMNS, key="id") if withdrawn else app.stream("t", COLUMNS)
    rows.group_by("k").agg(r=CALLS.get(name, f"{name}(x)")).to_view("out")
    (grouping,) = (op.grouping for level in lower(app.plan(), 1).levels for op in level.ops if isinstance(op, Merge))
    assert len(grouping.calls) == 1
    assert grouping.accumulators or grouping.multisets or grouping.calls == ("_n",)


def test_an_aggregate_has_an_accumulator_or_is_computed_from_a_multiset():
    names = {aggregate.name for aggregate in AGGREGATES.values()}
    assert names - SKETCHES <= set(ACCUMULATED) | set(FROM_MULTISET)


def test_what_can_be_withdrawn_from_a_minimum_is_its_multiset():
    assert set(FROM_MULTISET) >= EXTREMES
