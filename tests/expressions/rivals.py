"""Spark and DuckDB side by side: the same expressions over the same rows, with the rows for which each raises."""

import logging
import os
import sys

import duckdb
import pyarrow as pa

from headrace.base.schema import duckdb_type, to_ddl, type_name

RAISED = "raised"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_JAVA = """
public class Rowwise {
  public static Object run(org.apache.spark.sql.catalyst.expressions.Expression bound,
                           org.apache.spark.sql.catalyst.InternalRow[] rows) {
    StringBuilder raised = new StringBuilder();
    for (int i = 0; i < rows.length; i++) {
      try { bound.eval(rows[i]); } catch (Throwable t) {
        raised.append(i).append(',');
        bound = (org.apache.spark.sql.catalyst.expressions.Expression) bound.clone(); // builders of maps keep keys
      }
    }
    return raised.toString();
  }
}
"""


def session():
    """Start the Spark that expressions are held against."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    started = (
        SparkSession.builder.master("local[2]")
        .appName("headrace-expressions")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    started.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return started


class Spark:
    """Evaluates expressions in Spark; which rows raise is found out in the JVM, row by row, by interpretation."""

    def __init__(self, session):
        self.session = session
        # rows that the optimizer computes by itself would raise before they can be counted
        # (and rows are read by the places of all columns: none may fall away)
        # and i * (j * 2) put in another order raises for other rows
        rules = ("ConvertToLocalRelation", "ColumnPruning", "ReorderAssociativeOperator", "SimplifyExtractValueOps")
        excluded = ",".join(f"{_OPTIMIZER}.{rule}" for rule in rules)
        session.conf.set("spark.sql.optimizer.excludedRules", excluded)
        # and shared parts may be computed where an `and` would skip them
        session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
        session.conf.set("spark.sql.alwaysInlineCommonExpr", "true")  # or nullif adds columns
        # thousands of expressions, each over few rows: compiling them would take longer than computing them
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        jvm = session._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_JAVA)
        self.run = next(m for m in compiler.getClassLoader().loadClass("Rowwise").getMethods() if m.getName() == "run")
        self.expressions = jvm.org.apache.spark.sql.catalyst.expressions

    def evaluate(self, table, texts):
        """Return the answers to each text, and its type: `RAISED` marks a row that raises."""
        frame = self.session.createDataFrame(table, to_ddl(table.schema))
        rows = frame._jdf.queryExecution().executedPlan().executeCollect()
        projected = frame.selectExpr(*(f"{text} as c{place}" for place, text in enumerate(texts)))
        raised = self.raised(projected, rows, len(texts))
        kinds = [field.dataType.simpleString() for field in projected.schema.fields]
        guarded = [
            f"if(_row in ({','.join(map(str, bad))}), null, {text})" if bad else text
            for text, bad in zip(texts, raised, strict=True)
        ]
        columns = frame.selectExpr(*(f"{text} as c{place}" for place, text in enumerate(guarded))).toArrow().columns
        answers = [plain(column) for column in columns]
        for answer, bad in zip(answers, raised, strict=True):
            for row in bad:
                answer[row] = RAISED
        return list(zip(answers, kinds, strict=True))

    def raised(self, frame, rows, count):
        """Return the rows for which each of the frame's columns raises."""
        plan = frame._jdf.queryExecution().optimizedPlan()
        if plan.nodeName() != "Project":
            return [[]] * count
        given = self.expressions.package.AttributeSeq(plan.child().output())
        gateway = self.session.sparkContext._gateway
        arguments = gateway.new_array(gateway.jvm.java.lang.Object, 2)
        found = []
        for place in range(count):
            expression = plan.projectList().apply(place)
            arguments[0] = self.expressions.BindReferences.bindReference(expression, given, False)  # noqa: FBT003 Java has no keywords
            arguments[1] = rows
            found.append([int(row) for row in self.run.invoke(None, arguments).split(",") if row])
        return found


class Duck:
    """Evaluates our SQL in DuckDB, whole columns first and row by row if that raises."""

    def __init__(self):
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("SET TimeZone='UTC'; SET VARIABLE headrace_epoch_time = now()::TIMESTAMP")

    def load(self, table):
        """Take the rows that the next expressions are evaluated over."""
        naive = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema]
        self.connection.register("given", table.cast(pa.schema(naive)))
        self.connection.execute("CREATE OR REPLACE TABLE rows AS FROM given ORDER BY _row")
        self.count = table.num_rows

    def evaluate(self, expression):
        """Return the answers to an expression, and its type."""
        kind = str(self.connection.sql(f"SELECT {expression.sql} FROM rows").types[0])
        assert kind == str(self.connection.sql(f"SELECT NULL::{duckdb_type(expression.type)}").types[0]), (
            expression.text,
            kind,
            expression.sql,
        )
        try:
            return plain(self.column(f"SELECT {expression.sql} AS c FROM rows ORDER BY _row")), type_name(
                expression.type
            )
        except duckdb.Error:
            return [self.one(expression, row) for row in range(self.count)], type_name(expression.type)

    def one(self, expression, row):
        """Return the answer for one row."""
        try:
            return plain(self.column(f"SELECT {expression.sql} AS c FROM rows WHERE _row = {row}"))[0]
        except duckdb.InternalException:
            raise
        except duckdb.Error:
            return RAISED

    def column(self, query):
        """Return the only column of a query."""
        return self.connection.sql(query).to_arrow_table().column(0)


def plain(column):
    """Return the values of a column as a list; times as numbers, since Python has no year 0."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_list(column.type) and pa.types.is_timestamp(column.type.value_type):
        column = column.cast(pa.list_(pa.timestamp("us"))).cast(pa.list_(pa.int64()))
    if pa.types.is_list(column.type) and pa.types.is_date(column.type.value_type):
        column = column.cast(pa.list_(pa.int32()))
    if pa.types.is_string(column.type):  # Spark's text may hold bytes that are no text: we raise there
        column = column.cast(pa.binary())
        return [_text(value) for value in column.to_pylist()]
    return column.to_pylist()


def _text(value):
    try:
        return value if value is None else value.decode()
    except UnicodeDecodeError:
        return RAISED
