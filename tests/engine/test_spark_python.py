"""The Python that Spark starts on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headrace.engine.spark import programs
from headrace.engine.spark.python import python_program

ZIPS = "/opt/spark/python/lib/pyspark.zip:/opt/spark/python/lib/py4j-0.10.9-src.zip"
SHOWN = "import os, sys, pyspark; print(os.environ['PYTHONPATH'], sys.executable, pyspark.__file__, sys.argv[1:])"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.mark.parametrize("zips", ["", f"{ZIPS}:", f"{ZIPS}:{ZIPS}:"], ids=["none", "once", "twice"])
def test_it_is_this_python_with_the_installed_pyspark(zips):
    given = {**os.environ, "PYTHONPATH": f"/opt/spark core.jar:{zips}/of the/user/*"}
    done = subprocess.run(
        [python_program(), "-c", SHOWN, "a b", ""], env=given, capture_output=True, text=True, check=True
    )
    kept = "/opt/spark core.jar:/of the/user/*"
    assert done.stdout == f"{kept} {sys.executable} {pyspark.__file__} ['a b', '']\n"


def test_a_spark_of_another_place_keeps_its_zips(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert python_program() == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    assert python_program() != sys.executable


def test_where_no_program_can_be_written_spark_starts_this_python(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(programs.tempfile, "tempdir", str(tmp_path / "file"))
    assert python_program() == sys.executable


@pytest.mark.spark
def test_workers_of_spark_import_the_installed_pyspark(spark):
    def look(batches):
        import sys

        for batch in batches:
            yield batch.from_pydict({"file": [sys.modules["pyspark"].__file__]})

    (row,) = spark.range(1).repartition(1).mapInArrow(look, "file string").collect()
    assert row.file == pyspark.__file__
