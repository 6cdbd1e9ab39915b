"""What Spark tells of a failure becomes the error that was raised."""

import traceback

import pytest

from headrace.base.errors import FunctionError, RecordsGone, StepFailed

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
