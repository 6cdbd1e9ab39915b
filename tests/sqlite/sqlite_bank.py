"""A bank on SQLite as a program: `sqlite_bank.py STORAGE DATABASE`; the sum of all accounts is constant."""

from __future__ import annotations

import sys

import headrace as hr
from headrace.connect import duckdb, parquet, sqlite


def bank(storage: object, path: str) -> hr.App:
    """Return the app: a view of the sum over both tables, one of each customer, by a join, and two stores."""
    app = hr.App("bank", storage=str(storage), shards=1)
    checking = app.table("checking", source=sqlite.table(path, "checking"))
    savings = app.table("savings", source=sqlite.table(path, "savings"))
    both = checking.join(savings.select("id", "balance AS saved"), on="id")
    customers = both.select("id", "balance", "saved").named("customers")
    customers.to_view("customers")
    customers.to(duckdb.table(f"{storage}/customers.duckdb", "customers"))
    customers.to(parquet.folder(f"{storage}/warehouse"))
    both.group_by().agg(total="sum(balance + saved)", customers="count(*)").to_view("sums")
    return app


if __name__ == "__main__":
    bank(*sys.argv[1:]).run(carrier="in-process")
