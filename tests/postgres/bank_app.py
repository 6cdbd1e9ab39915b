"""A bank of two tables as a program: `bank_app.py STORAGE URL SLOT`.

The sum of both accounts over all customers is constant.
"""

from __future__ import annotations

import sys

import headrace as hr
from headrace.connect import duckdb, parquet, postgres


def bank(storage: object, url: str, slot: str) -> hr.App:
    """Return the app: a view with the sum over both tables, a view of each customer, by a join, and three stores."""
    app = hr.App("bank", storage=str(storage), shards=1)
    checking = app.table("checking", source=postgres.table(url, "checking", slot=slot))
    savings = app.table("savings", source=postgres.table(url, "public.savings", slot=slot))
    both = checking.join(savings.select("id", "balance AS saved"), on="id")
    customers = both.select("id", "balance", "saved").named("customers")
    customers.to_view("customers")
    customers.to(duckdb.table(f"{storage}/customers.duckdb", "customers"))
    customers.to(parquet.folder(f"{storage}/warehouse"))
    customers.to(postgres.upsert(url, "copied_customers"))
    both.group_by().agg(total="sum(balance + saved)", customers="count(*)").to_view("sums")
    return app


if __name__ == "__main__":
    bank(*sys.argv[1:]).run(carrier="in-process")
