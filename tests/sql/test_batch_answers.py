"""Queries that random ones do not draw hold what DuckDB's batch query gives, epoch by epoch."""

import pytest
from random_queries import play

FIRST = "select id, k, row_number() over (partition by k order by id) as rn from b"
UPPER = "select id as Id, cast(k as bigint) as K, s as Name, cast(v as int) as W from a"
WINDOWS_IN_ORDER = (
    "«select window.start as c0, count(*) as c1 from p group by window(at, '10 minutes') order by window.start limit 2"
    "¦select bucket(at, 10) as c0, count(*) as c1 from p group by c0 order by c0 limit 2»"
)
WINDOWS_IN_NUMBERS = (
    "«select s, k from (select window.start as s, k, rank() over (partition by window.start order by count(*) desc) "
    "as rn from p group by window(at, '10 minutes'), k) where rn = 1"
    "¦select s, k from (select *, rank() over (partition by s order by n desc) as rn from "
    "(select bucket(at, 10) as s, k, count(*) as n from p group by bucket(at, 10), k) as g) as r where rn = 1»"
)
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
    "aliases and subqueries inside of operators": (
        "select id as c0, v - k as c1 from a where v - k is not null order by -c1, id limit 2",
        "select k - v as c0, count(*) as c1 from a group by k - v having 3 - c0 > 2",
        "select id as c0, 10 - (select count(*) + 1 from b where b.k = a.k) as c1 from a",
        "select id as c0, (select count(*) > 1 or max(w) = 3 from b where b.k = a.k) and k > 1 as c1 from a",
        "select id as c0 from a where 10 - (select count(*) - 1 from b where b.k = a.k) > 9",
    ),
    "keys in parentheses": (
        "select k + 1 as c0, count(*) as c1 from a group by (k + 1)",
        "select (k + 1) * 2 as c0, count(*) as c1 from a group by (k + 1), (s) having max(k + 1) > 1",
    ),
    "aggregates that have the name of a column": (
        "select k, max(v) as v from a group by k having max(a.v) > 1 and v < 5 and k in (select k from b)",
        "select s, max(v) as v from a group by rollup(s, k) having grouping(k) = 0 order by v desc, s, k limit 3",
    ),
    "distinct rows in an order": (
        "select distinct a.k from a order by a.k desc limit 2",
        "select distinct k + 1 as c0 from a order by k + 1 limit 2",
        "select distinct a.s as c0, b.w as c1 from a join b on a.k = b.k order by b.w, a.s limit 3",
        "select distinct k as c0, count(*) as c1 from a group by k order by count(*) desc, k limit 2",
    ),
    "names that differ in case alone": (
        f"with l as ({UPPER}) select l.id as c0, Name, b.s as c2 from l join b on l.id = b.id",
        f"with l as ({UPPER}) select K as c0, x.w as c1, l.Id as c2 from b x full join l using (k)",
        f"with l as ({UPPER}) select l.W as c0, b.w as c1 from b left join l on l.K = b.k and l.w <> b.w",
        f"with l as ({UPPER}) select id from l where K in (select k from b) or exists (select w from b where w = k)",
        f"with l as ({UPPER}) select ID as c0 from l where exists (select 1 from b where b.k = l.K and b.w <> l.W)",
        f"with l as ({UPPER}) select ID as c0, (select max(w) from b where b.k = l.k) as c1 from l",
    ),
    "an inner join's on reads the outer query": (
        "select id from a where exists (select 1 from b join c on b.k = c.k and c.v > a.v where b.k = a.k)",
        "select id as c0, (select count(*) from b join c on b.k = c.k and b.k = a.k and c.v <> a.v) as c1 from a",
        "select id from a where id in (select b.id from b join c on b.k = c.k and c.v > a.v)",
    ),
    "exists with a limit": (
        "select id from a where exists (select 1 from b where b.k = a.k limit 1)",
        "select id from a where not exists (select 1 from b where b.k = a.k order by b.id limit 3)",
    ),
    "numbers in a list": (
        f"select id from ({FIRST}) where rn in (1, 3)",
        f"select id from ({FIRST}) where rn in (2) and rn < 5",
    ),
    "windows in orders": (WINDOWS_IN_ORDER, WINDOWS_IN_NUMBERS),
    "tests beside the times of two streams": (
        "select p.v from p join q on p.k = q.k and -p.v < q.w and q.at between p.at and p.at + interval 4 minutes",
    ),
    "joins in parentheses": (
        "select a.id as c0, b.w as c1, c.v as c2 from a left join (b join c on b.k = c.k) on a.k = b.k",
        "select * from (c join d using (k, v))",
        "select t.k as c0, t.w as c1, d.o as c2 from (a join b using (k)) as t left join d on d.k = t.k",
        "select x, y from (a left join d on a.k = d.k) as t(x, p, q, r, z, y, g, h, i) where y is not null",
        "select a.id as c0, c.v as c1 from (((a left join b on a.id = b.id)) right join c on c.k = b.k)",
        "select c.v as c0, a.s as c1, b.s as c2 from c full join (a full join b on a.k = b.k) on c.k = a.id",
        "select k, count(*) as n from a join (b left join c using (k)) using (k) group by k",
        "select a.id as c0 from a left anti join (b join c on b.k = c.k and b.w <> c.v) on b.id = a.id",
        "select s.id as c0, n as c1 from ((select id, k from a) as s) left join (values (1), (2) as v(n)) on s.k = n",
        "select a.id as c0 from (a) join (b) on a.id = b.id where exists (select 1 from (c join d on c.k = d.k))",
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
