"""Random queries over tables that change hold what DuckDB's batch query gives, epoch by epoch."""

import pytest
from random_queries import drawn, play


@pytest.mark.parametrize(
    "seeds", [range(0, 4, 2), pytest.param(range(1_000, 1_060), marks=pytest.mark.prove)], ids=["few", "many"]
)
def test_random_queries_give_what_a_batch_gives(seeds):
    answers = 0
    for seed in seeds:
        played = play(seed, drawn(seed, 12), epochs=3)
        assert not played.wrong, "\n".join(played.wrong)
        assert played.kept + played.refused.total() == 12
        assert played.kept > 9
        answers += played.answers
    assert answers > 10 * len(seeds)


FOUND = {
    "a test that on has too": (
        "select a.id as c0, b.k as c1 from a left join b on a.id = b.k where a.id = b.k",
        "select b.k as c0 from a full join b on a.id = b.k where a.id = b.k",
        "select a.id as c0, b.id as c1 from a join b on a.id = b.k right join d on a.k = d.k where a.id = b.k",
    ),
    "a row alone on both sides": (
        "with w as (select k, min(s) as s from b group by k) select l.s as c0 from w l full join w r on l.s = r.s",
        "select l.k as c0 from (select k from b group by k) l full join (select w from b group by w) r on l.k = r.w",
    ),
    "one expression of aggregates twice": (
        "select cast(count(*) as bigint) as c0, cast(count(*) as bigint) as c1 from a group by k",
        "select sum(v) + 1 as c0, (sum(v) + 1) * 2 as c1 from a group by k having sum(v) + 1 > 1",
        "select sum(v) - k as c0, abs(sum(v) - k) as c1 from a group by rollup(k, s) having count(*) > 0",
    ),
    "a test that reads nothing": (
        "select b.id as c0 from a right join b on a.v = b.k right join d on b.k = d.k where true is null or d.k >= 0",
        "select count(*) as c0 from a full join b on a.v = b.k full join d on b.k = d.k where 1 = 0 group by d.k",
    ),
    "using after on": (
        "select a.id as c0, b.id as c1 from a left semi join d on a.v = d.k right join b using (s)",
        "select a.v as c0, b.w as c1 from a join c on a.id = c.v full join b using (id)",
    ),
    "joins of several widths": (
        "select a.id as c0, b.w as c1 from a join b on a.f = b.m",
        "select a.id as c0 from a full join e on a.k = e.m and a.f = e.f",
        "select id as c0 from a where k in (select m from b where b.id = a.f)",
        "select id as c0, (select max(v) from e where e.m = b.m) as c1 from b",
        "select id as c0 from b where not exists (select 1 from e where e.v = b.m and e.f > b.w)",
        "select id as c0, (select count(*) from e where e.v = b.m and e.f > b.w) as c1 from b",
    ),
    "columns of several widths": (
        "select id as c0 from a union select sum(w) as c0 from b group by k",
        "select cast(k as bigint) as c0, s as c1 from a except select w as c0, s as c1 from b",
        "select id as c0 from a intersect all select cast(w as decimal(12,0)) as c0 from b",
        "select id as c0 from a union all select cast(w as double) as c0 from b union all select k as c0 from d",
    ),
}


@pytest.mark.parametrize("texts", FOUND.values(), ids=FOUND)
def test_what_random_queries_have_found(texts):
    answers = 0
    for seed in range(2):
        played = play(seed, list(texts), epochs=3)
        assert not played.wrong, "\n".join(played.wrong)
        assert played.kept == len(texts)
        answers += played.answers
    assert answers
