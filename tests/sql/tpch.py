"""TPC-H at a small scale over changing tables: schemas, rows, changes, and the 22 queries.

The queries are those of the specification, their parameters such that few rows give answers, and without `order by`
where there is no limit: the rows of a table have no order. Q14 casts a sum, since the quotient of its decimals has more
digits than there are; Q15 has its view as a common query.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal

SCHEMAS = {
    "region": (
        "r_regionkey bigint, r_name string, r_comment string",
        ("r_regionkey",),
    ),
    "nation": (
        "n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string",
        ("n_nationkey",),
    ),
    "supplier": (
        """s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, s_acctbal
        decimal(9,2), s_comment string""",
        ("s_suppkey",),
    ),
    "part": (
        """p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int,
        p_container string, p_retailprice decimal(9,2), p_comment string""",
        ("p_partkey",),
    ),
    "partsupp": (
        "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(9,2), ps_comment string",
        ("ps_partkey", "ps_suppkey"),
    ),
    "customer": (
        """c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, c_acctbal
        decimal(9,2), c_mktsegment string, c_comment string""",
        ("c_custkey",),
    ),
    "orders": (
        """o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(9,2), o_orderdate
        date, o_orderpriority string, o_clerk string, o_shippriority int, o_comment string""",
        ("o_orderkey",),
    ),
    "lineitem": (
        """l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(9,2),
        l_extendedprice decimal(9,2), l_discount decimal(9,2), l_tax decimal(9,2), l_returnflag string,
        l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string,
        l_shipmode string, l_comment string""",
        ("l_orderkey", "l_linenumber"),
    ),
}
NATIONS = ["FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "CHINA"]
REGIONS = ["AMERICA", "EUROPE", "ASIA"]
PARTS, SUPPLIERS, CUSTOMERS, ORDERS = 24, 8, 26, 90
BUYERS = 18  # the other customers order nothing
OFTEN = ["lineitem"] * 4 + ["orders"] * 3 + ["customer", "part", "partsupp", "supplier", "nation"]
FIRST = date(1993, 1, 1)


class Shop:
    """The rows of all tables, and random changes of them; all that is random comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 -- test data
        self.rows: dict[str, dict[tuple, dict]] = {name: {} for name in SCHEMAS}
        self.changed: dict[str, list[tuple[tuple, dict | None]]] = {name: [] for name in SCHEMAS}
        for number, name in enumerate(REGIONS):
            self._put("region", {"r_regionkey": number, "r_name": name, "r_comment": "none"})
        for number, name in enumerate(NATIONS):
            region = number % len(REGIONS)
            self._put("nation", {"n_nationkey": number, "n_name": name, "n_regionkey": region, "n_comment": "none"})
        for table, count in [("supplier", SUPPLIERS), ("part", PARTS), ("customer", CUSTOMERS), ("orders", ORDERS)]:
            for number in range(count):
                self._put(table, getattr(self, f"_{table}")(number))
        for part in range(PARTS):
            for supplier in self.dice.sample(range(SUPPLIERS), 2):
                self._put("partsupp", self._partsupp(part, supplier))
        for order in range(ORDERS):
            self._lines(order)

    def changes(self) -> dict[str, list[tuple[tuple, dict | None]]]:
        """Give the changes since last asked, in order: a key with its new row, or with None where it was deleted."""
        changed, self.changed = self.changed, {name: [] for name in SCHEMAS}
        return changed

    def change(self, count: int) -> None:
        """Change that many rows: some come, some go, some are other ones."""
        for _ in range(count):
            table = self.dice.choice(
                ["lineitem"] * 4 + ["orders"] * 3 + ["customer", "part", "partsupp", "supplier", "nation"]
            )
            keys = list(self.rows[table])
            what = self.dice.random()
            if table == "orders" and what < 0.3:
                number = max((key[0] for key in keys), default=0) + 1
                self._put("orders", self._orders(number))
                self._lines(number)
            elif table == "partsupp" and what < 0.3:
                self._put("partsupp", self._partsupp(self.dice.randrange(PARTS), self.dice.randrange(SUPPLIERS)))
            elif keys and what < 0.55 and table != "nation":
                self._drop(table, self.dice.choice(keys))
            elif keys:
                self._again(table, self.dice.choice(keys))

    def _again(self, table: str, key: tuple) -> None:
        if table == "nation":
            self._put(table, {**self.rows[table][key], "n_regionkey": self.dice.randrange(len(REGIONS))})
        elif table == "partsupp":
            self._put(table, self._partsupp(*key))
        elif table == "lineitem":
            self._put(table, self._line(*key))
        else:
            self._put(table, getattr(self, f"_{table}")(key[0]))

    def _put(self, table: str, row: dict) -> None:
        key = tuple(row[name] for name in SCHEMAS[table][1])
        self.rows[table][key] = row
        self.changed[table].append((key, row))

    def _drop(self, table: str, key: tuple) -> None:
        del self.rows[table][key]
        self.changed[table].append((key, None))

    # ---- rows ----

    def _money(self, low: int, high: int) -> Decimal:
        return Decimal(self.dice.randrange(low, high)) / 100

    def _phone(self) -> str:
        return f"{self.dice.choice([13, 31, 23, 29])}-555-{self.dice.randrange(1000):03}"

    def _supplier(self, number: int) -> dict:
        return {
            "s_suppkey": number, "s_name": f"Supplier#{number}", "s_address": f"street {number}",
            "s_nationkey": self.dice.randrange(len(NATIONS)), "s_phone": self._phone(),
            "s_acctbal": self._money(-10_000, 900_000),
            "s_comment": self.dice.choice(["quick", "Customer sends Complaints", "slow"]),
        }  # fmt: skip

    def _part(self, number: int) -> dict:
        dice = self.dice
        return {
            "p_partkey": number, "p_name": " ".join(dice.sample(["forest", "green", "red", "blue"], 2)),
            "p_mfgr": f"Manufacturer#{dice.randrange(1, 3)}", "p_brand": f"Brand#{dice.choice([12, 23, 45])}",
            "p_type": dice.choice(
                ["ECONOMY ANODIZED STEEL", "PROMO BRUSHED BRASS", "MEDIUM POLISHED TIN", "LARGE BRASS"]
            ),
            "p_size": dice.choice([1, 3, 5, 15]), "p_container": dice.choice(["SM CASE", "MED BOX", "LG CASE"]),
            "p_retailprice": self._money(90_000, 200_000), "p_comment": "none",
        }  # fmt: skip

    def _partsupp(self, part: int, supplier: int) -> dict:
        return {
            "ps_partkey": part, "ps_suppkey": supplier, "ps_availqty": self.dice.randrange(1, 60),
            "ps_supplycost": self._money(100, 2_000), "ps_comment": "none",
        }  # fmt: skip

    def _customer(self, number: int) -> dict:
        return {
            "c_custkey": number, "c_name": f"Customer#{number}", "c_address": f"road {number}",
            "c_nationkey": self.dice.randrange(len(NATIONS)), "c_phone": self._phone(),
            "c_acctbal": self._money(-90_000, 900_000),
            "c_mktsegment": self.dice.choice(["BUILDING", "AUTOMOBILE", "MACHINERY"]), "c_comment": "none",
        }  # fmt: skip

    def _orders(self, number: int) -> dict:
        dice = self.dice
        return {
            "o_orderkey": number, "o_custkey": None if dice.random() < 0.05 else dice.randrange(BUYERS),
            "o_orderstatus": dice.choice(["F", "F", "O", "P"]), "o_totalprice": self._money(100_000, 40_000_000),
            "o_orderdate": FIRST + timedelta(days=dice.randrange(1_400)),
            "o_orderpriority": dice.choice(["1-URGENT", "2-HIGH", "5-LOW"]), "o_clerk": f"Clerk#{dice.randrange(5)}",
            "o_shippriority": 0, "o_comment": dice.choice(["usual", "special packages requests", "late"]),
        }  # fmt: skip

    def _lines(self, order: int) -> None:
        for line in range(1, self.dice.randrange(2, 6)):
            self._put("lineitem", self._line(order, line))

    def _line(self, order: int, line: int) -> dict:
        dice = self.dice
        row = self.rows["orders"].get((order,))
        shipped = (row["o_orderdate"] if row else FIRST) + timedelta(days=dice.randrange(1, 120))
        return {
            "l_orderkey": order, "l_partkey": dice.randrange(PARTS), "l_suppkey": dice.randrange(SUPPLIERS),
            "l_linenumber": line, "l_quantity": Decimal(dice.randrange(1, 51)),
            "l_extendedprice": self._money(100_000, 5_000_000), "l_discount": Decimal(dice.randrange(11)) / 100,
            "l_tax": Decimal(dice.randrange(9)) / 100, "l_returnflag": dice.choice("RAN"),
            "l_linestatus": dice.choice("FO"), "l_shipdate": shipped,
            "l_commitdate": shipped + timedelta(days=dice.randrange(-30, 30)),
            "l_receiptdate": shipped + timedelta(days=dice.randrange(1, 30)),
            "l_shipinstruct": dice.choice(["DELIVER IN PERSON", "NONE"]),
            "l_shipmode": dice.choice(["MAIL", "SHIP", "AIR", "AIR REG"]), "l_comment": "none",
        }  # fmt: skip


QUERIES = {
    "q1": """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, avg(l_quantity) as avg_qty,
               avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc, count(*) as count_order
        from lineitem
        where l_shipdate <= date '1996-12-01' - interval '90' day
        group by l_returnflag, l_linestatus""",
    "q2": """
        select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        from part, supplier, partsupp, nation, region
        where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like '%BRASS'
          and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'EUROPE'
          and ps_supplycost = (
            select min(ps_supplycost) from partsupp, supplier, nation, region
            where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
              and n_regionkey = r_regionkey and r_name = 'EUROPE')
        order by s_acctbal desc, n_name, s_name, p_partkey
        limit 100""",
    "q3": """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate < date '1995-03-15' and l_shipdate > date '1994-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate
        limit 10""",
    "q4": """
        select o_orderpriority, count(*) as order_count
        from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval '13' month
          and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority""",
    "q5": """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
          and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
          and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
          and o_orderdate < date '1994-01-01' + interval '3' year
        group by n_name""",
    "q6": """
        select sum(l_extendedprice * l_discount) as revenue
        from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
          and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24""",
    "q7": """
        select supp_nation, cust_nation, l_year, sum(volume) as revenue
        from (
            select n1.n_name as supp_nation, n2.n_name as cust_nation, extract(year from l_shipdate) as l_year,
                   l_extendedprice * (1 - l_discount) as volume
            from supplier, lineitem, orders, customer, nation n1, nation n2
            where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey
              and s_nationkey = n1.n_nationkey and c_nationkey = n2.n_nationkey
              and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY') or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
              and l_shipdate between date '1993-01-01' and date '1996-12-31'
        ) as shipping
        group by supp_nation, cust_nation, l_year""",
    "q8": """
        select o_year, sum(case when nation = 'BRAZIL' then volume else 0 end) / sum(volume) as mkt_share
        from (
            select extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume,
                   n2.n_name as nation
            from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
            where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
              and o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey
              and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey
              and o_orderdate between date '1993-01-01' and date '1996-12-31' and p_type = 'ECONOMY ANODIZED STEEL'
        ) as all_nations
        group by o_year""",
    "q9": """
        select nation, o_year, sum(amount) as sum_profit
        from (
            select n_name as nation, extract(year from o_orderdate) as o_year,
                   l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
            from part, supplier, lineitem, partsupp, orders, nation
            where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey
              and p_partkey = l_partkey and o_orderkey = l_orderkey and s_nationkey = n_nationkey
              and p_name like '%green%'
        ) as profit
        group by nation, o_year""",
    "q10": """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address,
               c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
          and o_orderdate < date '1993-10-01' + interval '13' month and l_returnflag = 'R' and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        order by revenue desc
        limit 20""",
    "q11": """
        select ps_partkey, sum(ps_supplycost * ps_availqty) as value
        from partsupp, supplier, nation
        where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
        group by ps_partkey
        having sum(ps_supplycost * ps_availqty) > (
            select sum(ps_supplycost * ps_availqty) * 0.1 from partsupp, supplier, nation
            where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')""",
    "q12": """
        select l_shipmode,
               sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end)
               as high_line_count,
               sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end)
               as low_line_count
        from orders, lineitem
        where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
          and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
          and l_receiptdate < date '1994-01-01' + interval '1' year
        group by l_shipmode""",
    "q13": """
        select c_count, count(*) as custdist
        from (
            select c_custkey, count(o_orderkey)
            from customer left outer join orders on c_custkey = o_custkey and o_comment not like '%special%requests%'
            group by c_custkey
        ) as c_orders (c_custkey, c_count)
        group by c_count""",
    "q14": """
        select 100.00
               * cast(sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end) as double)
               / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
        from lineitem, part
        where l_partkey = p_partkey and l_shipdate >= date '1995-09-01'
          and l_shipdate < date '1995-09-01' + interval '3' month""",
    "q15": """
        with revenue (supplier_no, total_revenue) as (
            select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem
            where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval '12' month
            group by l_suppkey)
        select s_suppkey, s_name, s_address, s_phone, total_revenue
        from supplier, revenue
        where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)""",
    "q16": """
        select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt
        from partsupp, part
        where p_partkey = ps_partkey and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%'
          and p_size in (1, 5, 15)
          and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%Complaints%')
        group by p_brand, p_type, p_size""",
    "q17": """
        select sum(l_extendedprice) / 7.0 as avg_yearly
        from lineitem, part
        where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container = 'MED BOX'
          and l_quantity < (select 0.8 * avg(l_quantity) from lineitem where l_partkey = p_partkey)""",
    "q18": """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) as quantity
        from customer, orders, lineitem
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 110)
          and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate
        limit 100""",
    "q19": """
        select sum(l_extendedprice * (1 - l_discount)) as revenue
        from lineitem, part
        where (p_partkey = l_partkey and p_brand = 'Brand#12' and p_container in ('SM CASE', 'SM BOX')
               and l_quantity >= 1 and l_quantity <= 30 and p_size between 1 and 5
               and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
           or (p_partkey = l_partkey and p_brand = 'Brand#23' and p_container in ('MED BOX', 'MED BAG')
               and l_quantity >= 10 and l_quantity <= 40 and p_size between 1 and 10
               and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
           or (p_partkey = l_partkey and p_brand = 'Brand#45' and p_container in ('LG CASE', 'LG BOX')
               and l_quantity >= 5 and l_quantity <= 50 and p_size between 1 and 15
               and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')""",
    "q20": """
        select s_name, s_address
        from supplier, nation
        where s_suppkey in (
            select ps_suppkey from partsupp
            where ps_partkey in (select p_partkey from part where p_name like 'forest%')
              and ps_availqty > (
                select 0.3 * sum(l_quantity) from lineitem
                where l_partkey = ps_partkey and l_suppkey = ps_suppkey and l_shipdate >= date '1993-01-01'
                  and l_shipdate < date '1993-01-01' + interval '3' year))
          and s_nationkey = n_nationkey and n_name in ('CANADA', 'FRANCE', 'CHINA')""",
    "q21": """
        select s_name, count(*) as numwait
        from supplier, lineitem l1, orders, nation
        where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
          and l1.l_receiptdate > l1.l_commitdate
          and exists (select * from lineitem l2
                      where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
          and not exists (select * from lineitem l3
                          where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
                            and l3.l_receiptdate > l3.l_commitdate)
          and s_nationkey = n_nationkey and n_name in ('SAUDI ARABIA', 'FRANCE')
        group by s_name
        order by numwait desc, s_name
        limit 100""",
    "q22": """
        select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal
        from (
            select substring(c_phone from 1 for 2) as cntrycode, c_acctbal
            from customer
            where substring(c_phone from 1 for 2) in ('13', '31', '23')
              and c_acctbal > (select avg(c_acctbal) from customer
                               where c_acctbal > 0.00 and substring(c_phone from 1 for 2) in ('13', '31', '23'))
              and not exists (select * from orders where o_custkey = c_custkey)
        ) as custsale
        group by cntrycode""",
}
