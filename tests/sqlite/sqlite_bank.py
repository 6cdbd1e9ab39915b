"""A bank on SQLite as a program: `bank.py STORAGE DATABASE`. The sum of both tables over all customers is constant."""

from __future__ import annotations

import sys

import headrace as hr
from headrace.connect import sqlite


def bank(storage: object, path: str) -> hr.App:
    """Return the app: a view with the sum over both tables, and a view of each customer, by a join."""
    app = hr.App("bank", storage=str(storage), shards=1)
    checking = app.table("checking", source=sqlite.table(path, "checking"))
    savings = app.table("savings", source=sqlite.table(path, "savings"))
    both = checking.join(savings.select("id", "balance AS saved"), on="id")
    both.select("id", "balance", "saved").to_view("customers")
    both.group_by().agg(total="sum(balance + saved)", customers="count(*)").to_view("sums")
    return app


if __name__ == "__main__":
    bank(*sys.argv[1:]).run(carrier="in-process")
