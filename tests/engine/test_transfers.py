"""Internal consistency: credits and debits added up apart, two topics, a join; every read sums to 0."""

from __future__ import annotations

from scripts import transfers


def test_money_is_neither_made_nor_lost_at_any_read_of_another_process(tmp_path):
    """In full: `python scripts/transfers.py --reads 10000`."""
    wrong, seen = transfers.prove(tmp_path, 20240131, 100)
    assert wrong == 0
    assert seen > 0
