"""Covariance, correlation and linear regression of pairs of doubles, as SQL over exact sums.

A pair counts where neither value is null. The sums are exact, so a pair that is withdrawn leaves nothing behind, and
the same pairs give the same result in every order. Where a value is not finite, the result is NaN, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.aggregates import exact, moments

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernels.aggregates.exact import Parts


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of two columns of doubles, which are null together; `total` keeps the exact sum of an expression."""

    count: str
    x: str
    y: str
    total: Callable[[str], Parts]

    def mean(self, column: str) -> str:
        """Return SQL for the mean of a column."""
        return f"({exact.total(self.total(column))} / {self.count})"

    def distances(self, a: str, b: str) -> str:
        """Return SQL for the sum of the products of the distances from the means of two columns."""
        sums = [self.total(term) for term in (a, b, f"{a} * {b}", moments.product_error(a, b))]
        products = moments.distances(self.count, *sums)
        return f"greatest({products}, 0)" if a == b else products

    @property
    def xx(self) -> str:
        """The squared distances of x."""
        return self.distances(self.x, self.x)

    @property
    def yy(self) -> str:
        """The squared distances of y."""
        return self.distances(self.y, self.y)

    @property
    def xy(self) -> str:
        """The products of both distances."""
        return self.distances(self.x, self.y)

    @property
    def slope(self) -> str:
        """The slope of the line through the pairs; null where all x are equal."""
        return f"({self.xy} / nullif({self.xx}, 0))"


def _determined(pairs: Pairs) -> str:
    return (
        f"CASE WHEN {pairs.xx} = 0 THEN NULL WHEN {pairs.yy} = 0 THEN 1 "
        f"ELSE {pairs.xy} * {pairs.xy} / {pairs.xx} / {pairs.yy} END"
    )


def _correlated(pairs: Pairs) -> str:
    """Null where all values of one are equal, whatever the others are."""
    spread = f"nullif(sqrt({pairs.xx} * {pairs.yy}), 0)"
    return f"CASE WHEN {pairs.xx} <> 0 AND {pairs.yy} <> 0 THEN {pairs.xy} / {spread} END"


RESULTS: dict[str, tuple[int, Callable[[Pairs], str]]] = {
    "covar_pop": (1, lambda of: f"{of.xy} / {of.count}"),
    "covar_samp": (2, lambda of: f"{of.xy} / ({of.count} - 1)"),
    "corr": (2, _correlated),
    "regr_avgx": (1, lambda of: of.mean(of.x)),
    "regr_avgy": (1, lambda of: of.mean(of.y)),
    "regr_sxx": (1, lambda of: of.xx),
    "regr_syy": (1, lambda of: of.yy),
    "regr_sxy": (1, lambda of: of.xy),
    "regr_slope": (1, lambda of: of.slope),
    "regr_intercept": (1, lambda of: f"{of.mean(of.y)} - {of.slope} * {of.mean(of.x)}"),
    "regr_r2": (1, _determined),
}
"""How many pairs a function needs, else it is null; and its result. `regr_…` are called with y first."""


def result(function: str, pairs: Pairs) -> str:
    """Return SQL for the result of a function."""
    least, sql = RESULTS[function]
    return f"CASE WHEN {pairs.count} >= {least} THEN {sql(pairs)} END"
