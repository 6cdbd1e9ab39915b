"""Queries besides those of TPC-H: over its tables, and over two streams."""

from __future__ import annotations

TABLES = {
    "distinct": "select distinct c_mktsegment, c_nationkey % 2 as half from customer",
    "union_all": """
        select s_nationkey as nation, s_name as name from supplier union all select c_nationkey, c_name from
        customer where c_acctbal > 1000""",
    "union_each_once": "select s_nationkey as nation from supplier union select c_nationkey from customer",
    "group_by_alias": "select year(o_orderdate) as year, max(o_totalprice) as most from orders group by year",
    "group_by_case": """
        select case when o_totalprice > 200000 then 'large' when o_totalprice > 50000 then 'middle' end as size,
        count(*) as n, count(o_custkey) as known from orders group by 1""",
    "having_unseen": """
        select o_custkey from orders group by o_custkey having count(*) > 4 and min(o_totalprice) < 50000""",
    "having_alias": """
        select o_custkey, sum(o_totalprice) as spent from orders group by o_custkey having spent > 500000""",
    "count_distinct": """
        select l_shipmode, count(distinct l_partkey) as parts, count(distinct l_suppkey) filter (where
        l_quantity > 20) as large from lineitem group by l_shipmode""",
    "collections": """
        select l_orderkey, collect_set(l_shipmode) as modes, max_by(l_partkey, l_extendedprice) as dearest from
        lineitem group by l_orderkey""",
    "aggregate_of_aggregate": """
        select n, count(*) as orders, sum(total) as total from (select l_orderkey, count(*) as n,
        sum(l_quantity) as total from lineitem group by l_orderkey) group by n""",
    "left_join": """
        select c_custkey, c_name, o_orderkey, o_comment from customer left join orders on c_custkey = o_custkey
        and o_orderstatus = 'O' and c_acctbal > 2000""",
    "left_join_is_null": """
        select c_custkey from customer left join orders on c_custkey = o_custkey where o_orderkey is null""",
    "right_join": """
        select o.o_orderkey, c.c_custkey, c.c_name from customer c right join orders o on c.c_custkey =
        o.o_custkey""",
    "full_join": """
        select c_custkey, c_name, o_orderkey from customer full outer join orders on c_custkey = o_custkey""",
    "full_join_same_names": """
        select a.k as ak, b.k as bk, a.n, b.m from (select o_custkey as k, count(*) as n from orders where
        o_totalprice > 200000 group by o_custkey) a full join (select o_custkey as k, count(*) as m from orders
        where o_totalprice < 150000 group by o_custkey) b on a.k = b.k""",
    "full_join_using": """
        select k, n, m from (select o_custkey as k, count(*) as n from orders where o_totalprice > 200000 group
        by o_custkey) a full join (select o_custkey as k, count(*) as m from orders where o_totalprice < 150000
        group by o_custkey) b using (k)""",
    "left_join_same_names": """
        select a.k, b.k as other, b.m from (select c_custkey as k from customer) a left join (select o_custkey
        as k, count(*) as m from orders group by o_custkey) b on a.k = b.k""",
    "semi_join": """
        select c_name from customer left semi join orders on c_custkey = o_custkey and o_totalprice > c_acctbal
        * 30""",
    "anti_join": """
        select c_name from customer left anti join orders on c_custkey = o_custkey and o_orderstatus = 'O'""",
    "self_join": """
        select a.s_name as one, b.s_name as other from supplier a join supplier b on a.s_nationkey =
        b.s_nationkey and a.s_suppkey < b.s_suppkey""",
    "natural_join": """
        select k, name, orders from (select c_custkey as k, c_name as name from customer) natural join (select
        o_custkey as k, count(*) as orders from orders group by o_custkey)""",
    "lateral_view": """
        select word, count(*) as n, max(o_totalprice) as most from orders lateral view explode(split(o_comment, ' '))
        w as word where length(word) > 6 and o_orderstatus <> 'P' group by word""",
    "lateral_views": """
        select o_orderkey, a, w.b from orders lateral view explode(sequence(1, o_custkey % 3 + 1)) as a lateral view
        outer explode(filter(array(o_custkey, a), x -> x % 2 = 0)) w as b where o_totalprice > 100000""",
    "lateral_map": """
        select k, sum(v) as total from lineitem lateral view explode(map('quantity', l_quantity, l_shipmode, l_tax))
        as k, v group by k""",
    "lateral_join": """
        select c.c_name, e.part from customer c join orders o on c.c_custkey = o.o_custkey, lateral
        explode(split(c.c_mktsegment, 'I')) as e(part) where o_totalprice > 200000 and e.part in (select
        substring(c_mktsegment, 1, 2) from customer)""",
    "exists_lateral": """
        select s_name from supplier where exists (select 1 from customer lateral view explode(array(c_nationkey,
        c_nationkey + 1)) as near where near = s_nationkey and c_acctbal > 5000)""",
    "explode_item": """
        select c_custkey, explode(sequence(0, c_nationkey % 4)) as step, c_name from customer where c_acctbal > 0""",
    "explode_map_item": "select explode(map(s_name, s_nationkey, 'all', s_suppkey)) from supplier",
    "explode_outer_item": "select p_partkey, explode_outer(nullif(array(p_size), array(1))) as size from part",
    "lateral_positions": """
        select word, min(place) as first, count(*) as n from customer lateral view posexplode(split(c_comment, ' ')) as
        place, word group by word having n > 1""",
    "inline_item": """
        select s_suppkey, inline(array(named_struct('n', s_nationkey, 'of', s_name), named_struct('n', 0, 'of', 'all')))
        from supplier""",
    "posexplode_map_item": "select s_suppkey, posexplode(map(s_name, s_nationkey)) as (p, k, v) from supplier",
    "outer_positions": """
        select o_orderkey, w.* from orders lateral view outer posexplode(filter(split(o_comment, ' '), x -> length(x)
        > 9)) w""",
    "outer_map": """
        select o_orderkey, k, v from orders lateral view outer explode(if(o_totalprice > 100000, map(o_orderstatus,
        o_custkey), null)) as k, v""",
    "inline_outer_item": """
        select n_name, inline_outer(filter(array(named_struct('r', n_regionkey, 'n', n_name)), x -> x.r > 1)) from
        nation""",
    "stack_item": "select p_partkey, stack(2, p_size, p_name, p_size + 1) from part",
    "unpivot": """
        select what, count(*) as n, sum(value) as total from lineitem lateral view stack(3, 'quantity', l_quantity,
        'tax', l_tax, 'nothing', null) s as what, value group by what""",
    "pivot": """
        select * from (select o_custkey, o_orderstatus, o_totalprice from orders) pivot (sum(o_totalprice) as total,
        count(*) as n for o_orderstatus in ('O', 'F' as done, 'X'))""",
    "pivot_of_one": """
        select n_name, p.* from nation join (select * from (select s_nationkey, s_suppkey % 3 as third, s_acctbal from
        supplier) pivot (count(s_acctbal) for third in (0, 1, 2))) p on n_nationkey = s_nationkey""",
    "pivot_by_two": """
        select * from (select l_shipmode, l_returnflag, l_linestatus, l_quantity from lineitem) pivot (max(l_quantity)
        for (l_returnflag, l_linestatus) in (('R', 'F') as back, ('N', 'O') as open)) where back > 10""",
    "unpivot_columns": """
        select name, sum(v) as total, count(*) as n from (select ps_partkey, nullif(ps_availqty, 100) as ps_availqty,
        ps_suppkey from partsupp) unpivot (v for name in (ps_availqty as there, ps_suppkey)) u group by name""",
    "unpivot_nulls": """
        select * from (select c_custkey, nullif(c_nationkey, 1) as a, c_nationkey + 1 as b from customer) unpivot
        include nulls (v for k in (a, b)) where k = 'a'""",
    "star_except": """
        select c.* except (c_comment, c.c_address), n.* except (n_nationkey, n_comment) from customer c join nation n
        on c_nationkey = n_nationkey""",
    "star_except_of_all": "select * except (s_comment, s_address) from supplier where s_acctbal > 0",
    "group_by_all": """
        select year(o_orderdate) as year, o_orderstatus, count(*) as n, max(o_totalprice) - min(o_totalprice) as range
        from orders group by all having n > 1""",
    "join_on_expressions": """
        select p_partkey, o_orderkey from part join orders on length(p_name) = length(o_comment) + 4 and p_size
        < 5""",
    "join_star": "select * from nation join region on n_regionkey = r_regionkey",
    "three_ways": """
        select n.n_name, count(*) as n, sum(o_totalprice) as total from nation n join customer c on
        n.n_nationkey = c.c_nationkey left join orders o on c.c_custkey = o.o_custkey group by n.n_name""",
    "join_of_aggregates": """
        select o.k, o.n, l.m from (select o_custkey as k, count(*) as n from orders group by o_custkey) o,
        (select o_custkey as k, sum(l_quantity) as m from orders, lineitem where o_orderkey = l_orderkey group
        by o_custkey) l where o.k = l.k and o.n < l.m""",
    "common_twice": """
        with spent as (select o_custkey as k, sum(o_totalprice) as s from orders group by o_custkey) select a.k,
        b.k as richer from spent a join spent b on a.k = b.k - 1 where a.s < b.s""",
    "in_several_columns": """
        select ps_partkey, ps_suppkey, ps_availqty from partsupp where (ps_partkey, ps_suppkey) in (select
        l_partkey, l_suppkey from lineitem where l_quantity > 10)""",
    "in_correlated": """
        select o_orderkey from orders where o_custkey in (select c_custkey from customer where c_nationkey =
        o_orderkey % 6)""",
    "not_in": """
        select p_partkey, p_name from part where p_partkey not in (select l_partkey from lineitem where
        l_partkey is not null and l_quantity > 45)""",
    "exists_otherwise": """
        select s_name from supplier where exists (select 1 from partsupp where ps_suppkey = s_suppkey and
        ps_supplycost * 400 > s_acctbal)""",
    "exists_any": "select r_name from region where exists (select 1 from orders where o_totalprice > 396000)",
    "not_exists_any": """
        select r_name from region where not exists (select 1 from orders where o_totalprice > 396000)""",
    "value_of_each": """
        select c_custkey, (select sum(o_totalprice) from orders where o_custkey = c_custkey) as spent, (select
        count(*) from orders where o_custkey = c_custkey) as orders from customer""",
    "value_of_all": """
        select o_orderkey, o_totalprice - (select avg(o_totalprice) from orders) as above from orders where
        o_totalprice > (select max(o_totalprice) / 2 from orders)""",
    "no_orders_by_count": """
        select c_custkey from customer where (select count(*) from orders where o_custkey = c_custkey) = 0""",
    "having_value": """
        select l_shipmode, sum(l_quantity) as q from lineitem group by l_shipmode having sum(l_quantity) >
        (select avg(l_quantity) * 50 from lineitem)""",
    "first_two": """
        select * from (select o_custkey, o_orderkey, o_totalprice, row_number() over (partition by o_custkey
        order by o_totalprice desc, o_orderkey) as place from orders) where place <= 2""",
    "first_one": """
        select o_custkey, o_totalprice from (select *, row_number() over (partition by o_custkey order by
        o_orderdate, o_orderkey) as rn from orders) as t where t.rn = 1 and o_totalprice > 1""",
    "second_and_third": """
        select o_orderkey, p + 0 as p from (select row_number() over (partition by o_orderstatus order by
        o_totalprice, o_orderkey) as p, o_orderkey from orders) where p between 2 and 3""",
    "first_of_aggregates": """
        with ranked as (select c_nationkey, c_name, sum(o_totalprice) as s, row_number() over (partition by
        c_nationkey order by sum(o_totalprice) desc, c_name) as rn from customer, orders where c_custkey =
        o_custkey group by c_nationkey, c_name) select c_nationkey, c_name, s from ranked where rn < 3""",
    "ranked": """
        select * from (select o_custkey, o_orderkey, o_orderstatus, rank() over (partition by o_custkey order by
        o_orderstatus) as place from orders) where place <= 3""",
    "values_joined": """
        select t.label, t.weight * count(*) as n from orders join (values ('O', 'open', 2), ('F', 'done', 1.5), ('F',
        'full', null)) as t(status, label, weight) on o_orderstatus = t.status group by t.label, t.weight""",
    "values_without_a_match": """
        with states as (values ('O', date '1995-01-01'), ('X', date '1999-12-31'), (null, null)) select col1 as status,
        col2 as since, o_orderkey from states left join orders on col1 = o_orderstatus and o_totalprice > 300000""",
    "values_added": """
        select n, count(*) as rows from (select n_nationkey as n from nation union all values (1L), (2L + 3), (77L))
        group by n""",
    "in_values": "select o_orderkey from orders where o_orderstatus in (select * from values ('F'), ('P'))",
    "limit_by_hidden": """
        select l_suppkey from lineitem group by l_suppkey order by sum(l_extendedprice) desc, l_suppkey limit 3""",
    "limit_in_from": """
        select count(*) as n, min(o_totalprice) as least from (select o_totalprice from orders order by
        o_totalprice desc, o_orderkey limit 7)""",
    "null_safe": """
        select a.o_orderkey as a, b.o_orderkey as b from orders a join orders b on a.o_clerk = b.o_clerk and
        a.o_custkey <=> b.o_custkey and a.o_orderkey < b.o_orderkey""",
    "branches_in_common": """
        select p_partkey, l_orderkey from part, lineitem where (p_partkey = l_partkey and p_size = 1 and
        l_quantity < 10) or (l_partkey = p_partkey and p_partkey = l_partkey and p_size = 5 and l_quantity > 40)""",
    "not_in_with_nulls": """
        select c_custkey from customer where c_custkey not in (select nullif(o_custkey, 2) from orders where
        o_totalprice > 300000)""",
    "or_in": """
        select p_partkey from part where p_size < 3 or p_partkey in (select l_partkey from lineitem where
        l_quantity > 45) or exists (select 1 from partsupp where ps_partkey = p_partkey and ps_availqty < 300)""",
    "in_as_a_column": """
        select c_custkey, coalesce(c_custkey in (select nullif(o_custkey, 2) from orders), false) as ordered, case
        when c_nationkey in (select s_nationkey from supplier) then 'near' else 'far' end as place from customer""",
    "value_of_a_range": """
        select o_orderkey, (select sum(l_quantity) from lineitem where l_orderkey = o_orderkey and l_extendedprice <
        o_totalprice / 3) as small, (select count(*) from orders p where p.o_custkey = o.o_custkey and p.o_orderdate
        < o.o_orderdate) as earlier from orders o""",
    "values_over_nothing": """
        select c_custkey, (select coalesce(sum(o_totalprice), 0) from orders where o_custkey = c_custkey and
        o_totalprice > 200000) as large, (select array_size(collect_list(o_orderkey)) + count(*) from orders where
        o_custkey = c_custkey) as orders from customer where c_acctbal not in (select max(o_totalprice) from orders
        where o_custkey = c_custkey) or (select max(o_totalprice) is null from orders where o_custkey = c_custkey)""",
    "rollup": """
        select o_orderstatus, year(o_orderdate) as year, count(*) as n, sum(o_totalprice) as total,
        grouping(o_orderstatus) as g, grouping_id() as id from orders group by rollup(o_orderstatus,
        year(o_orderdate))""",
    "intersect": "select c_nationkey as k from customer intersect select s_nationkey from supplier",
    "except_all": """
        select o_custkey as k, o_orderstatus as s from orders except all select o_custkey, o_orderstatus from
        orders where o_totalprice > 150000""",
    "listed": """
        select o_custkey, listagg(o_orderkey, ',') within group (order by o_totalprice desc, o_orderkey) as keys
        from orders group by o_custkey""",
    "pairs": """
        select o_orderstatus, corr(o_totalprice, o_custkey) as c, regr_slope(o_totalprice, o_custkey) as slope,
        covar_samp(o_totalprice, o_custkey) as v, skewness(o_totalprice) as skew, kurtosis(o_totalprice) as kurt,
        bit_xor(o_orderkey) as bits from orders group by o_orderstatus having regr_count(o_totalprice, o_custkey)
        > 1""",
}
STREAMS = {
    "values_looked_up": """
        select c.user, c.at, t.team, t.size from clicks c left join (values ('ann', 'red', 1.5), ('bob', 'blue', 2),
        ('bob', 'green', 3)) as t(who, team, size) on c.user = t.who""",
    "passing": "select c.user, upper(url) as url, at from clicks c where url is not null and user <> 'bot'",
    "minutes": """
        select user, window.start as start, window.end as end, count(*) as n, count(url) as urls from clicks
        group by user, window(at, '1 minute')""",
    "hopping": """
        select window.start as start, count(distinct user) as users from clicks group by window(at, '1 minute',
        '20 seconds')""",
    "hopping_offset": """
        select window(at, '1 minute', '30 seconds', '7 seconds').start as start, max(url) as url from clicks
        group by window(at, '1 minute', '30 seconds', '7 seconds')""",
    "sessions": """
        select user, session_window.start as first, session_window.end as last, count(*) as n from clicks group
        by user, session_window(at, '15 seconds')""",
    "busy_minutes": """
        select window.start as start, user, count(*) as n from clicks group by user, window(at, '1 minute')
        having count(*) > 3 and user <> 'bot'""",
    "ever": "select user, count(*) as n, max(at) as last from clicks group by user",
    "users": "select distinct user from clicks union select user from searches",
    "both": "select search_id, user, at from clicks union all select search_id, user, at from searches",
    "matched": """
        select s.query, c.url, s.at as searched, c.at as clicked from searches s join clicks c on s.search_id =
        c.search_id and c.at between s.at - interval 5 seconds and s.at + interval 20 seconds""",
    "matched_minutes": """
        select s.query, window.start as start, count(*) as n from searches s, clicks c where s.search_id =
        c.search_id and c.at >= s.at and c.at < s.at + interval 20 seconds and c.user = s.user group by s.query,
        window(greatest(s.at, c.at), '1 minute')""",
    "followed": """
        select s.query, s.at from searches s left semi join clicks c on s.search_id = c.search_id and c.at between
        s.at - interval 2 seconds and s.at + interval 20 seconds""",
    "unbounded": """
        select s.query, c.url, count(*) as n from searches s join clicks c on s.search_id = c.search_id and c.at >
        s.at group by s.query, c.url""",
    "over_last_three": """
        select user, url, at, count(url) over (partition by user order by at rows between 2 preceding and current
        row) as n, lag(url, 1, 'none') over (partition by user order by at) as before, row_number() over (partition
        by user order by at) as nr from clicks""",
    "latest_clicks": "select user, url, at from clicks order by at desc, url, user, search_id limit 5",
    "clicks_of_customers": """
        select k.user, k.n, count(c_custkey) as customers from (select user, count(*) as n from clicks group by
        user) k left join customer on c_nationkey = k.n % 7 group by k.user, k.n""",
}
MORE = {
    "not_in_of_nulls": """
        select o_orderkey from orders where nullif(o_custkey, 3) not in (select c_custkey from customer where
        c_acctbal < 0)""",
    "not_in_correlated": """
        select o_orderkey from orders where o_custkey not in (select nullif(l_suppkey, 1) from lineitem where
        l_orderkey = o_orderkey)""",
    "neither_in_nor_exists": """
        select s_suppkey from supplier where not (s_nationkey in (select c_nationkey from customer where c_acctbal <
        0) or exists (select 1 from partsupp where ps_suppkey = s_suppkey and ps_availqty > 9000))""",
    "two_equal_columns_of_one": """
        select o_orderkey from orders where (o_orderkey, o_custkey) in (select l_orderkey, l_orderkey from
        lineitem)""",
    "above_the_others": """
        select c_custkey from customer c where c_acctbal > (select avg(d.c_acctbal) from customer d where
        d.c_nationkey = c.c_nationkey and d.c_custkey <> c.c_custkey)""",
    "cube_having": """
        select l_shipmode, l_returnflag, avg(l_quantity) as mean, count(distinct l_shipmode) as modes from lineitem
        group by cube(l_shipmode, l_returnflag) having grouping_id() < 3 and count(*) > 2""",
    "grouping_sets_twice": """
        select o_orderstatus, o_orderpriority, sum(o_custkey) as s from orders group by grouping sets
        ((o_orderstatus), (o_orderpriority), (o_orderstatus), ())""",
    "rollup_of_what_is_summed": """
        select c_mktsegment, c_nationkey, sum(c_nationkey) as s, grouping(c_nationkey) as g from customer group by
        c_mktsegment, rollup(c_nationkey)""",
    "rollup_of_a_pair": """
        select c_mktsegment, c_nationkey, count(*) as n from customer group by c_mktsegment, c_nationkey with
        rollup""",
    "intersect_all": """
        select o_custkey as k, o_orderstatus as s from orders intersect all select o_custkey, o_orderstatus from
        orders where o_totalprice > 100000""",
    "except": "select c_custkey from customer except select o_custkey from orders",
    "minus_then_first": """
        select c_custkey from customer minus select o_custkey from orders order by c_custkey desc limit 3""",
    "listed_once": """
        select c_nationkey, string_agg(distinct c_mktsegment, '/') within group (order by c_mktsegment desc) as
        segments from customer group by c_nationkey""",
    "dense_ranked": """
        select l_orderkey, l_shipmode from (select *, dense_rank() over (partition by l_orderkey order by
        l_shipmode desc) as place from lineitem) where place = 2""",
    "followed_minutes": """
        select query, window.start as start, count(*) as n from searches s where exists (select 1 from clicks c
        where c.search_id = s.search_id and c.at >= s.at and c.at < s.at + interval 20 seconds and c.user = s.user)
        group by query, window(at, '1 minute')""",
    "unbounded_twice": """
        select s.query, c.url, count(d.url) as n from searches s join clicks c on s.search_id = c.search_id left join
        clicks d on c.user = d.user and d.at > c.at and d.url = s.query group by s.query, c.url""",
    "customers_who_clicked": """
        select c_custkey from customer where c_nationkey in (select minute(at) % 9 from clicks) and not exists (select
        1 from searches where second(at) = c_custkey)""",
    "over_a_time": """
        select user, n, count(*) as rows from (select user, count(*) over (partition by user order by at range
        between interval 10 seconds preceding and current row) as n from clicks) group by user, n""",
    "minutes_and_all": """
        select user, window.start as start, count(*) as n from clicks group by window(at, '1 minute'),
        rollup(user)""",
}
"""As CHAINS, for the script alone."""
TIMED = {
    "followed",
    "followed_minutes",
    "minutes_and_all",
    "busy_minutes",
    "hopping",
    "hopping_offset",
    "matched",
    "matched_minutes",
    "minutes",
    "sessions",
}
"""The queries that need a grace."""
CHAINS = {
    "two_left_joins": """
        select c.c_custkey, o.o_orderkey, l.l_linenumber from customer c left join orders o on
        c.c_custkey=o.o_custkey left join lineitem l on o.o_orderkey=l.l_orderkey and l.l_quantity>30 where
        l.l_linenumber is null or o.o_totalprice > 100000""",
    "left_join_then_comma": """
        select c.c_custkey, o.o_orderkey, n.n_name from customer c left join orders o on
        c.c_custkey=o.o_custkey, nation n where c.c_nationkey=n.n_nationkey and o.o_orderstatus='F'""",
    "right_join_then_inner": """
        select o.o_orderkey, c.c_name, n.n_name from orders o right join customer c on c.c_custkey=o.o_custkey
        and o.o_orderstatus='F' join nation n on n.n_nationkey=c.c_nationkey where n.n_name like 'C%' or
        o.o_orderkey is null""",
    "full_join_then_where": """
        select o.o_orderkey, c.c_custkey from orders o full join customer c on c.c_custkey=o.o_custkey where
        o.o_totalprice > 200000 or c.c_acctbal < 0""",
    "full_join_then_left": """
        select o.o_orderkey, c.c_custkey from orders o full join customer c on c.c_custkey=o.o_custkey and
        o.o_totalprice > 200000 left join nation n on n.n_nationkey = c.c_nationkey where n.n_nationkey = 1 or
        n.n_nationkey is null""",
    "left_join_of_names": """
        select a.x, b.x as bx from (select c_nationkey as x, c_custkey as k from customer) a left join (select
        o_custkey as k, o_orderkey as x from orders) b on a.k = b.k where b.k is null or b.k > 5""",
    "right_join_of_names": """
        select a.k, b.k as bk from (select c_custkey as k from customer) a right join (select o_custkey as k,
        o_orderkey as x from orders) b on a.k = b.k and b.x > 30""",
    "right_join_using": """
        select k, count(*) as n from (select c_custkey as k from customer) a right join (select o_custkey as k,
        o_orderkey as x from orders) b using (k) group by k""",
    "full_join_using_twice": """
        select k, x, n_name from (select c_custkey as k, c_nationkey as z from customer) a full join (select
        o_custkey as k, o_orderkey as x from orders) b using (k) left join (select n_nationkey as z, n_name from
        nation) c using (z)""",
    "exists_over_a_join": """
        select c_custkey from customer c where exists (select 1 from orders o, lineitem l where o.o_orderkey =
        l.l_orderkey and o.o_custkey = c.c_custkey and l.l_quantity * 1000 > c.c_acctbal) and c_nationkey in
        (select n_nationkey from nation where n_name < 'F')""",
    "values_over_joins": """
        select c_custkey, (select max(l_quantity) from orders, lineitem where o_orderkey = l_orderkey and
        o_custkey = c_custkey) as m, (select count(o_orderkey) from orders where o_custkey = c_custkey and
        o_totalprice > 300000) as n from customer where c_acctbal > (select avg(c_acctbal) from customer)""",
    "having_value_of_a_query": """
        select n_name, count(*) as c from customer, nation where c_nationkey = n_nationkey group by n_name
        having count(*) >= (select max(n) from (select count(*) as n from supplier group by s_nationkey)) and
        n_name <> 'CHINA'""",
    "not_exists_over_a_join": """
        select p_partkey from part where not exists (select 1 from partsupp, supplier where ps_partkey =
        p_partkey and ps_suppkey = s_suppkey and s_acctbal > 400000)""",
    "first_two_with_a_test": """
        select o_custkey, o_orderkey from (select o_custkey, o_orderkey, row_number() over (partition by
        o_custkey order by o_orderdate desc, o_orderkey) as rn from orders where o_orderstatus = 'F') t where rn
        <= 2 and o_custkey is not null""",
    "left_join_of_a_group": """
        select s.s_suppkey, t.total from supplier s left join (select l_suppkey as k, sum(l_quantity) as total
        from lineitem where l_returnflag='R' group by l_suppkey) t on s.s_suppkey = t.k where coalesce(t.total,
        0) < 500""",
    "union_then_anti_join": """
        select x.a, y.a as b from (select s_nationkey as a from supplier union select c_nationkey from customer)
        x left anti join (select n_nationkey as a from nation where n_regionkey = 1) z on x.a = z.a join (select
        distinct c_nationkey as a from customer) y on x.a = y.a""",
    "three_of_one_table": """
        select l1.l_orderkey from lineitem l1 join lineitem l2 on l1.l_orderkey = l2.l_orderkey and
        l1.l_linenumber <> l2.l_linenumber join lineitem l3 on l3.l_orderkey = l2.l_orderkey and l3.l_linenumber
        > l2.l_linenumber where l1.l_shipmode = l3.l_shipmode""",
}
"""Joins in chains, and tests above outer ones: more than the suite has time for."""
