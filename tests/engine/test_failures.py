"""What Spark tells of a failure becomes the error that was raised."""

import errno
import os
import traceback

import pytest

import headrace as hr
from headrace.base.errors import FunctionError, RecordsGone, StepFailed
from headrace.base.outside import AccessRefused
from headrace.engine.publish import Publisher
from headrace.testing import Driver

failures = pytest.importorskip("headrace.engine.spark.failures")

RAISED = [
    FunctionError('step "mine": broken (app.py:3) raised ValueError: no', detail="row 7", hint="Mend it."),
    StepFailed("sums", "overflow"),
    RecordsGone("t", 2, first=3, start=9),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_of_ours_is_found_in_the_text_of_a_trace(error):
    """Wherever in `base` its class is."""
    trace = "".join(traceback.format_exception(error))
    made = failures.explained(RuntimeError(f"An exception was raised by the Python Proxy:\n{trace}\n\tat org.apache"))
    assert type(made) is type(error)
    assert str(made) == str(error)


def test_a_failure_of_sparks_own_is_quoted():
    made = failures.explained(RuntimeError("Job aborted\n\tat org.apache"))
    assert str(made).startswith("[SPARK_FAILED] Spark ended the query: Job aborted")


def test_an_error_of_python_that_is_none_of_ours_is_named_and_not_that_it_has_a_trace():
    try:
        try:
            {}.pop("first")
        except KeyError:
            [].pop(7)
    except IndexError as error:
        trace = "".join(traceback.format_exception(error))
    proxy = f"An exception was raised by the Python Proxy. Return Message: {trace}"
    made = failures.explained(RuntimeError(f"{proxy}\n\tat py4j.Protocol"))
    assert made.what == "Spark ended the query: IndexError: pop from empty list"


@pytest.mark.spark
def test_a_step_whose_publishing_fails_says_so_on_spark(spark, monkeypatch):  # noqa: ARG001 -- the session is shared
    """The epoch is committed by then; the file system's own error becomes ours."""

    def read_only(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "epochs")

    app = hr.App("refused")
    app.stream("t", "v int").to_topic("out")
    with Driver(app, carrier="spark") as driver:
        driver.send("t", {"v": 1})
        monkeypatch.setattr(Publisher, "publish", read_only)
        with pytest.raises(AccessRefused):
            driver.step()
        monkeypatch.undo()
        driver.restart()
        assert driver.read("out") == [{"v": 1}]
