"""Random pairs of programs on one storage: the second is refused, or its outputs are right for what it says it covers.

Over a stream of facts a changed program covers the rows before the change in the old way and those after it in the new
one; over a table it covers every row in the new way.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.errors import PlanChanged
from headrace.testing import Driver

COLUMNS = "id int, user string, amount int"


def _columns(row, **new):
    return {**row, **{name: value(row) for name, value in new.items()}}


CHAINS = {
    "nothing": (lambda rows: rows, lambda row: row),
    "large": (lambda rows: rows.where("amount > 2"), lambda row: row if row["amount"] > 2 else None),
    "larger": (lambda rows: rows.where("amount > 4"), lambda row: row if row["amount"] > 4 else None),
    "both, cut in two": (
        lambda rows: rows.where("amount > 2").where("id < 5"),
        lambda row: row if row["amount"] > 2 and row["id"] < 5 else None,
    ),
    "both, the other way round": (
        lambda rows: rows.where("id < 5").named("few").where("amount > 2"),
        lambda row: row if row["amount"] > 2 and row["id"] < 5 else None,
    ),
    "doubled": (
        lambda rows: rows.with_columns(amount="amount * 2"),
        lambda row: _columns(row, amount=lambda r: r["amount"] * 2),
    ),
    "a column more": (lambda rows: rows.with_columns(more="amount + 1"), lambda row: row),
    "renamed and back": (lambda rows: rows.rename(a="amount").rename(amount="a"), lambda row: row),
    "other users": (
        lambda rows: rows.select("id", "amount", user="upper(user)"),
        lambda row: _columns(row, user=lambda r: r["user"].upper()),
    ),
}


def _totals(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["user"], []).append(row["amount"])
    return sorted((user, len(found), sum(found)) for user, found in groups.items())


def _best(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["user"], []).append((-row["amount"], row["id"]))
    return sorted((user, *min(found)[::-1]) for user, found in groups.items())


CONSUMERS = {
    "totals": (
        lambda rows, name: (
            rows.group_by("user").agg(n="count(*)", s="sum(amount)").named(*name).select("user", "n", "s")
        ),
        _totals,
        ("user", "n", "s"),
    ),
    "best": (
        lambda rows, name: (
            rows.group_by("user").top(1, by="amount desc, id asc").named(*name).select("user", "id", a="-amount")
        ),
        _best,
        ("user", "id", "a"),
    ),
    "rows": (
        lambda rows, name: rows.select("user", "id", "amount"),  # noqa: ARG005 -- of one shape with the others
        lambda rows: sorted((row["user"], row["id"], row["amount"]) for row in rows),
        ("user", "id", "amount"),
    ),
}


@dataclass(frozen=True)
class Program:
    """A program of the vocabulary."""

    table: bool
    chain: str
    consumer: str
    name: str
    more: bool

    def app(self):
        """Return it as an app; `more` has a second view beside the first."""
        app = hr.App("law")
        rows = app.table("t", COLUMNS, key="id") if self.table else app.stream("t", COLUMNS)
        read = CHAINS[self.chain][0](rows)
        CONSUMERS[self.consumer][0](read, (self.name,)).to_view("out")
        if self.more:
            rows.to_view("more")
        return app

    def through(self, rows):
        """Return what the chain makes of rows."""
        return [kept for row in rows if (kept := CHAINS[self.chain][1](row)) is not None]


def programs(*, table):
    return st.builds(
        Program,
        table=st.just(table),
        chain=st.sampled_from(sorted(CHAINS)),
        consumer=st.sampled_from(sorted(CONSUMERS)),
        name=st.sampled_from(["kept", "kept", "other"]),
        more=st.booleans(),
    )


ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(1, 7), "user": st.sampled_from(["a", "b"]), "amount": st.integers(0, 6)}),
    min_size=1,
    max_size=6,
)


def now_in_table(rows):
    return list({row["id"]: row for row in rows}.values())


def play(program, storage, rows):
    with Driver(program.app(), storage=storage, shards=2) as driver:
        driver.send("t", *rows)
        driver.run()
        out = driver.view("out")
        more = sorted(row["id"] for row in driver.view("more")) if program.more else None
    columns = CONSUMERS[program.consumer][2]
    return sorted(tuple(row[name] for name in columns) for row in out), more


def expected(program, old, first, second):
    """Return the answer of the batch query over what the program covers."""
    answer = CONSUMERS[program.consumer][1]
    if program.table:
        return answer(program.through(now_in_table([*first, *second])))
    return answer([*old.through(first), *program.through(second)])


def check(old, new, first, second):
    with tempfile.TemporaryDirectory() as storage:
        before = play(old, storage, first)
        try:
            out, more = play(new, storage, second)
        except PlanChanged:
            assert play(old, storage, [])[0] == before[0], "a refused program leaves the storage as it was"
            assert play(old, storage, second)[0] == expected(old, old, first, second)
            return False
    assert out == expected(new, old, first, second)
    if more is not None and old.more:
        sent = now_in_table([*first, *second]) if new.table else [*first, *second]
        assert more == sorted(row["id"] for row in sent)
    return True


@settings(max_examples=examples(8), deadline=None)
@given(old=programs(table=False), new=programs(table=False), first=ROWS, second=ROWS)
def test_a_changed_program_over_a_stream_is_refused_or_right(old, new, first, second):
    check(old, new, first, second)


@settings(max_examples=examples(8), deadline=None)
@given(old=programs(table=True), new=programs(table=True), first=ROWS, second=ROWS)
def test_a_changed_program_over_a_table_is_refused_or_right(old, new, first, second):
    check(old, new, first, second)


def test_the_law_accepts_and_refuses():
    """Both outcomes occur, so that the law is about something."""
    plain = Program(table=True, chain="both, cut in two", consumer="totals", name="kept", more=False)
    same = Program(table=True, chain="both, the other way round", consumer="totals", name="kept", more=False)
    other = Program(table=False, chain="large", consumer="totals", name="kept", more=False)
    renamed = Program(table=False, chain="large", consumer="totals", name="other", more=False)
    rows = [{"id": 1, "user": "a", "amount": 3}, {"id": 6, "user": "a", "amount": 3}]
    assert check(plain, same, rows, rows)
    assert not check(other, renamed, rows, rows)
