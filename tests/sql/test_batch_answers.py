"""Queries that random ones do not draw hold what DuckDB's batch query gives, epoch by epoch."""

import pytest
from random_queries import play

FIRST = "select id, k, row_number() over (partition by k order by id) as rn from b"
ANSWERS = {
    "first rows that an outer join pads with nulls": (
        f"select a.id as c0, r.rn as c1 from a left join ({FIRST}) r on a.k = r.k where r.rn <= 1",
        f"select a.id as c0, r.id as c1 from ({FIRST}) r right join a on a.k = r.k where r.rn = 1",
        f"select a.id as c0, r.id as c1 from a full join ({FIRST}) r on a.k = r.k where r.rn < 3",
        f"select a.id as c0, r.id as c1 from ({FIRST}) r left join a on a.k = r.k where r.rn = 1",
    ),
    "first rows that on asks for": (
        f"select a.id as c0, r.id as c1 from a join ({FIRST}) r on a.k = r.k and r.rn = 1",
        f"select a.id as c0, r.id as c1 from a left join ({FIRST}) r on a.k = r.k and r.rn <= 2 and r.rn > 1",
        f"select a.id as c0, r.id as c1 from ({FIRST}) r join a on a.k = r.k and r.rn = 1 left join d on a.k = d.k",
        f"select a.id as c0 from a left anti join ({FIRST}) r on a.k = r.k and r.rn = 1 and r.id <> a.id",
        f"with r as ({FIRST}) select x.id as c0 from r x left anti join r y on x.id = y.k and y.rn < 3 where x.rn <= 1",
    ),
    "first rows under other names": (
        f"select * from ({FIRST}) as r(x, y, place) where place <= 1",
        f"select x from ({FIRST}) as r(x, y, rn) where rn <= 1",
        f"with r(x, y, place) as ({FIRST}) select y, x from r where place <= 2",
        f"select x.id, y.id as other from ({FIRST}) x join ({FIRST}) y using (rn) where x.rn <= 2 and y.rn <= 2",
    ),
    "the place of a number among the columns": (
        "select * from (select row_number() over (partition by k order by id) as rn, * from b) where rn <= 1",
        "select * from (select a.*, rank() over (order by v) as rn, b.w from a join b on a.id = b.id) where rn <= 2",
    ),
    "an order that no column of the query shows": (
        "select x from (select a.id as x, rank() over (order by b.w) as rn from a join b on a.id = b.id) where rn < 3",
    ),
}


@pytest.mark.parametrize("texts", ANSWERS.values(), ids=ANSWERS)
def test_a_query_gives_what_a_batch_gives(texts):
    answers = 0
    for seed in range(2):
        played = play(seed, list(texts), epochs=3)
        assert not played.wrong, "\n".join(played.wrong)
        assert played.kept == len(texts), played.refused
        answers += played.answers
    assert answers
