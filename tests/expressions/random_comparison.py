"""Random expressions in Spark and in DuckDB: value for value, error for error, type for type."""

from dataclasses import dataclass

import duckdb
import pyarrow as pa
from comparison import same
from generator import Generator
from rivals import RAISED, plain

from headrace.base.errors import PlanError
from headrace.base.schema import type_name
from headrace.expressions import scalar

BATCH = 60


@dataclass(frozen=True)
class Difference:
    """An expression that differs, with the row and both answers."""

    seed: str
    text: str
    row: object
    theirs: object
    ours: object

    def __str__(self):
        return f"seed {self.seed}: {self.text}\n    row {self.row}\n    Spark {self.theirs!r}\n    ours  {self.ours!r}"


def batch(rivals, seed, size=BATCH):
    """Compare one batch; the seed makes its expressions and its rows."""
    spark, duck = rivals
    generator = Generator(seed)
    table = generator.rows()
    duck.load(table)
    expressions = [generator.expression() for _ in range(size)]
    found = []
    answers = _answers(spark, table, [expression.text for expression, _ in expressions])
    for (expression, compiled), answer in zip(expressions, answers, strict=True):
        difference = _differs(duck, table, expression, compiled, answer, seed)
        if difference is not None:
            found.append(_smallest(spark, duck, table, expression, seed) or difference)
    return found


def _answers(spark, table, texts):
    """Return Spark's answers; a text that Spark refuses is found by halving, and has the error as its answer."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        return spark.evaluate(table, texts)
    except (pa.ArrowInvalid, Py4JJavaError):  # bugs of Spark's own: structs with nulls that cannot be, the optimizer
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return _answers(spark, table, texts[:half]) + _answers(spark, table, texts[half:])
    except PySparkException as error:
        if len(texts) == 1 and not isinstance(error, AnalysisException):  # constants that raise do so early
            return [([RAISED] * table.num_rows, "")]
        if len(texts) == 1:
            return [(f"refused: {type(error).__name__} {str(error).splitlines()[0][:200]}", None)]
        half = len(texts) // 2
        return _answers(spark, table, texts[:half]) + _answers(spark, table, texts[half:])


def _differs(duck, table, expression, compiled, answer, seed):
    if answer is None:
        return None
    theirs, kind = answer
    if kind is None:
        return Difference(seed, expression.text, None, theirs, type_name(compiled.type))
    if kind and kind != type_name(compiled.type):
        return Difference(seed, expression.text, "type", kind, type_name(compiled.type))
    raised = [row for row, value in enumerate(theirs) if isinstance(value, str) and value == RAISED]
    ours = _ours(duck, compiled, raised, len(theirs))
    for row, (their_value, our_value) in enumerate(zip(theirs, ours, strict=True)):
        if their_value == RAISED and our_value is None and _raises(duck, compiled):
            continue  # a stated difference: DuckDB leaves out a part where another is null in its whole batch
        if our_value == RAISED and pa.types.is_date(compiled.type) and isinstance(their_value, int):
            continue  # a stated difference: a date that Python has no value for, after the year 294246
        if not same(their_value, our_value, ulp=expression.ulp):
            values = {name: str(table.column(name)[row]) for name in compiled.columns}
            return Difference(seed, expression.text, values, their_value, our_value)
    return None


def _raises(duck, compiled):
    try:
        duck.column(f"SELECT {compiled.sql} AS c FROM rows")
    except duckdb.Error:
        return True
    return False


def _ours(duck, compiled, raised, count):
    """Return our answers: all rows that must not raise at once, then each of the others."""
    rest = f"WHERE _row NOT IN ({', '.join(map(str, raised))})" if raised else ""
    try:
        others = iter(plain(duck.column(f"SELECT {compiled.sql} AS c FROM rows {rest} ORDER BY _row")))
    except duckdb.InternalException:
        raise
    except duckdb.Error:
        return [duck.one(compiled, row) for row in range(count)]
    return [duck.one(compiled, row) if row in raised else next(others) for row in range(count)]


def _smallest(spark, duck, table, expression, seed):
    """Return the difference of the smallest part that differs by itself."""
    for part in expression.all():
        try:
            compiled = scalar(part.text, generator_schema(), step="part")
        except PlanError:
            continue
        difference = _differs(duck, table, part, compiled, _answers(spark, table, [part.text])[0], seed)
        if difference is not None:
            return difference
    return None


def generator_schema():
    """Return the columns that expressions read."""
    from adversaries import SCHEMA

    return SCHEMA
