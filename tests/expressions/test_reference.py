"""The reference page is what the table says."""

from pathlib import Path

from headrace.expressions.reference import page
from headrace.expressions.table import FAMILIES, TABLE

PAGE = Path(__file__).parents[2] / "docs" / "expressions.md"


def test_the_reference_page_is_up_to_date():
    """Print it again with `python -m headrace.expressions.reference docs/expressions.md`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_entry_has_an_example():
    assert [function.names for family in FAMILIES.values() for function in family if not function.examples] == []


def test_the_table_knows_two_hundred_functions():
    assert len([name for name in TABLE if name[0].isalpha()]) >= 200
