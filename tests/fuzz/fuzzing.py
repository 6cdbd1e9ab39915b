"""Texts that nobody meant: mutations of those in our docs, given to everything that reads a text."""

# ruff: noqa: E501 -- lists of texts, as dense as they are read

from __future__ import annotations

import random
import re
import time
from functools import cache
from pathlib import Path

import headrace as hr
from headrace.base.errors import HeadraceError, InternalError
from headrace.base.names import check_identifier, check_topic
from headrace.base.schema import parse, parse_type
from headrace.base.time import duration, instant
from headrace.expressions import aggregates, condition, order, scalar
from headrace.expressions.table import AGGREGATES, TABLE, spark_names

HOUSE = Path(__file__).parents[2]
SECONDS = 2.0
"""No text takes longer, in seconds of the processor."""
SCHEMA = parse(
    "id bigint, n int, x double, price decimal(10, 2), name string, at timestamp, day date, ok boolean, raw binary, "
    "tags array<string>, counts map<string, int>, who struct<name: string, age: int>"
)
KEYS = parse("id bigint, name string")
TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|[A-Za-z_]\w*|[\d.]+\w*|\s+|.", re.DOTALL)
PIECES = [
    *("(", ")", "[", "]", "<", ">", ",", ".", ";", ":", "::", "->", "=", "<=>", "<>", "||", "+", "-", "*", "/", "%"),
    *("!", "'", '"', "`", "\\", "--", "/*", "*/", "{{", "?", "@", "$", "#", "\0", "\n", "é", "\ud800", "\u202e", "\U0001d4b3"),
    *("select", "from", "where", "group by", "having", "order by", "limit", "join", "on", "using", "union all"),
    *("with", "over", "partition by", "filter", "lateral", "values", "distinct", "as", "not", "null", "is", "in", "like"),
    *("end", "between", "case", "when", "then", "else", "cast", "interval", "exists", "array", "map", "struct", "date"),
    *("timestamp", "1e", "1e400", "9" * 400, "0x", "1L", "-1", "0", "''", "int", "decimal(", "varchar(", "id", "at"),
    *("name", "tags", "null,", "x ->", "count(*)", "sum(", "window(", "second", "days", "1 second", "..", "/", "~"),
]  # fmt: skip


def _app():
    app = hr.App("fuzz")
    app.stream("orders", SCHEMA, event_time="at")
    app.table("users", SCHEMA, key="id")
    return app


def _aggregate(text):
    aggregates({"x": text}, SCHEMA, KEYS, step="s", functions={})


ATOMS = [
    *("id", "n", "x", "price", "name", "at", "day", "ok", "raw", "tags", "counts", "who", "who.age", "tags[0]", "null"),
    *("counts['a']", "1", "-1", "0.5", "1e3", "5L", "'a'", "''", "'2026-01-31'", "date '2026-01-31'", "interval 1 day"),
    *("interval '1' month", "timestamp '2026-01-31 10:00:00'", "true", "array(1, 2)", "map('a', 1)", "array()"),
    *("map()", "v -> v", "(a, b) -> a + b", "v -> v > 1", "*", "struct(n, name)", "X'00ff'", "-0.0", "'yyyy-MM-dd'", "'%s'"),
]  # fmt: skip
VALID = {
    "aggregate": ["sum(n)", "count(*)", "avg(x) + count(distinct name)", "max_by(name, at)",
        "count(*) filter (where ok)", "percentile(x, array(0.5, 0.9))", "collect_list(name)", "max(who)", "approx_count_distinct(name)",
        "id + sum(n)", "stddev(x) / sum(price)", "any_value(tags)", "count_if(n > 1)", "corr(x, n)", "histogram_numeric(x, 5)"],
    "order": ["n", "n desc", "x asc nulls last, name", "upper(name) desc", "price * n"],
    "query": ["select id, n + 1 as m from orders where ok", "select name, sum(n) as s from users group by name",
        "select o.id, u.name as other from orders o join users u on o.id = u.id",
        "select window(at, '1 minute').start as w, count(*) as n from orders group by window(at, '1 minute')",
        "with t as (select id, name from users) select * from t union all select id, name from users",
        "select * from (select id, row_number() over (partition by name order by n desc) as r from users) where r < 3",
        "select id, case when n > 1 then 'a' else name end as c from users where id in (select id from orders)",
        "select name, max(x) as m from users group by name having count(*) > 1 order by m desc limit 3",
        "select u.id, o.n as m from users u left join orders o on u.id = o.id and o.at > u.at - interval 1 hour",
        "select distinct day, ok from users where exists (select 1 from orders o where o.id = users.id)",
        "select id, explode(tags) as tag from users", "select count(*) as n, avg(price) as p from users"],
    "schema": ["id bigint not null, tags array<string>, who struct<a: int, `b c`: map<string, decimal(10, 2)>>",
        "a int, b varchar(10), c char(3), d timestamp_ntz"],
    "type": ["decimal(38, 18)", "map<string, array<struct<a: int>>>", "varchar(10)"],
    "duration": ["1 hour 30 minutes", "-5 s", "1.5 days", "3 weeks"],
    "instant": ["2026-01-31 10:00:00", "2026-01-31T10:00:00.123+02:00", "2026-01-31"],
    "window": ["10 minutes", "1 hour 30 minutes", "7 days"],
    "stream": ["at", "id"],
    "topic": ["orders.dead", "a-b_c.1"], "identifier": ["orders_by_user"],
}  # fmt: skip
"""Texts that are taken, by their kind; expressions are made of functions and atoms."""


def expression_of(draw, depth=2):
    """A random expression, often a valid one."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(ATOMS)
    parts = [expression_of(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    if draw.random() < 0.7 or len(parts) < 2:
        return f"{draw.choice(FUNCTIONS)}({', '.join(parts)})"
    forms = ["{0} + {1}", "{0} = {1}", "{0} and {1}", "{0} || {1}", "case when {0} then {1} end", "{0} in ({1}, 1)"]
    forms += [
        "cast({0} as string)",
        "{0} between {1} and 3",
        "{0} like {1}",
        "try_cast({0} as int)",
        "{0}[{1}]",
        "{0} <=> {1}",
    ]
    forms += [
        "{0} <=> {1}",
        "cast({0} as decimal(5, 2))",
        "{0} is not null",
        "not {0}",
        "- {0}",
        "{0} % {1}",
        "if({0}, {1}, null)",
    ]
    return draw.choice(forms).format(*parts)


FUNCTIONS = sorted({*TABLE, *AGGREGATES, *spark_names.SPARK, *spark_names.REFUSED})
READERS = {
    "expression": lambda text: scalar(text, SCHEMA, step="s"),
    "condition": lambda text: condition(text, SCHEMA, step="s"),
    "aggregate": _aggregate,
    "order": lambda text: order(text, SCHEMA, step="s"),
    "query": lambda text: _app().sql(text, grace="0 seconds" if "window" in text else None),
    "schema": parse,
    "type": parse_type,
    "duration": duration,
    "instant": instant,
    "identifier": lambda text: check_identifier(text, what="step"),
    "topic": check_topic,
    "window": lambda text: hr.hopping(text, every=text, grace=text),
    "stream": lambda text: hr.App("fuzz").stream("t", "id int, at timestamp", event_time=text, key=text),
}
"""Everything that reads a text, by the kind of the text."""


@cache
def corpus():
    """The texts in our docs: code in lines, blocks of SQL, and lines of the tests' own expressions."""
    texts = {"", " ", "id bigint, tags array<string>", "1 hour 30 minutes", "2026-01-31 10:00:00", "decimal(10, 2)"}
    for page in sorted((HOUSE / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        texts |= set(re.findall(r"`([^`\n]{1,300})`", text))
        texts |= {block.strip() for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)}
        texts |= set(re.findall(r'"([^"\n]{3,200})"', text))
    composed = (HOUSE / "tests" / "expressions" / "test_composed.py").read_text(encoding="utf-8")
    texts |= {line.strip() for line in composed.splitlines() if "(" in line}
    queries = (HOUSE / "tests" / "sql" / "sql_queries.py").read_text(encoding="utf-8")
    texts |= {" ".join(text.split()) for text in re.findall(r'"{1,3}\s*((?:select|with)\b[^"]+)"', queries)}
    return sorted(texts)


def text_of(seed):
    """The text of a seed."""
    draw = random.Random(f"texts {seed}")  # noqa: S311 -- the same for the same seed
    kind, choice = kind_of(seed), draw.random()
    if choice < 0.3:
        text = draw.choice(corpus())
    elif choice < 0.8 and kind in VALID:
        text = draw.choice(VALID[kind])
    else:
        text = expression_of(draw)
    tokens = TOKEN.findall(text)
    for _ in range(draw.choice([0, 0, 1, 1, 2, 4])):
        tokens = draw.choice(MUTATIONS)(draw, tokens, draw.randint(0, len(tokens)))
    return "".join(tokens)[:20_000]


def _inserted(draw, tokens, at):
    return [*tokens[:at], draw.choice([*PIECES, *ATOMS]), *tokens[at:]]


def _replaced(draw, tokens, at):
    return [*tokens[:at], draw.choice([*PIECES, *ATOMS]), *tokens[at + 1 :]]


def _shortened(draw, tokens, at):
    return tokens[:at] + tokens[at + draw.randint(1, 3) :]


def _cut(draw, tokens, at):
    del draw
    return tokens[:at]


def _spliced(draw, tokens, at):
    other = TOKEN.findall(draw.choice(corpus()))
    return tokens[:at] + other[draw.randint(0, len(other)) :]


def _nested(draw, tokens, at):
    del at
    count = draw.choice([2, 10, 100, 1000])
    opened, closed = draw.choice([("(", ")"), ("array(", ")"), ("abs(", ")"), ("array<", ">"), ("not ", "")])
    return [opened * count, *tokens, closed * count]


def _chained(draw, tokens, at):
    del at
    return [draw.choice([" + ", " and ", " || ", ", ", " union all "]).join(["".join(tokens)] * 40)]


MUTATIONS = [*(3 * [_inserted, _replaced, _shortened]), _cut, _spliced, _nested, _chained]


def kind_of(seed):
    """What reads the text of a seed: mostly expressions and queries."""
    draw = random.Random(f"kinds {seed}")  # noqa: S311 -- the same
    return draw.choice([*READERS, *(4 * ["expression", "query"]), "condition", "aggregate", "aggregate"])


def fault_of(seed):
    """What is wrong with how a seed's text is read, or None: it is taken, or refused by an error of ours, soon."""
    kind, text = kind_of(seed), text_of(seed)
    began = time.process_time()
    wrong = None
    try:
        READERS[kind](text)
    except InternalError as error:
        wrong = str(error).splitlines()[0][-200:]
    except HeadraceError as error:
        str(error)
    except Exception as error:  # noqa: BLE001 -- that is what is looked for
        wrong = f"{type(error).__name__}: {str(error)[:200]}"
    seconds = time.process_time() - began
    if wrong is None and seconds > SECONDS:
        wrong = f"{seconds:.1f} seconds"
    return None if wrong is None else f"seed {seed}: {kind} {text[:300]!a}: {wrong}"
