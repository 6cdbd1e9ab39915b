"""Every entry of the table of translations computes what Spark computes: values, types and errors."""

import pytest
from comparison import differences

from headrace.expressions.table import FAMILIES

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("family", FAMILIES)
def test_every_example_of_the_table_computes_what_spark_computes(rivals, family):
    examples = [(text, function.ulp) for function in FAMILIES[family] for text in function.examples]
    found = differences(rivals, examples)
    assert not found, "\n" + "\n".join(found)
