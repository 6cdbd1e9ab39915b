"""A checkpoint without child processes: half of a tiny epoch is Hadoop starting `chmod` and `readlink`.

`QuietFiles.java` is compiled inside the JVM by Spark's own compiler, and registered as the file system of the scheme
`headrace:`. It changes how files are written, not which: a checkpoint can be used by its plain path at any time.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SCHEME = "headrace"
_SOURCE = Path(__file__).with_name("QuietFiles.java")
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_compiling = threading.Lock()


def quiet_location(spark: SparkSession, path: str | Path) -> str:
    """Return where a query's checkpoint should be, for the folder `path`: a quiet location, or `path` itself.

    It is `path` where the quiet files cannot work: tasks run on other machines, the file system is not this machine's,
    the class does not compile. The log (`logging`) says why.

    Trap: sets the file manager of checkpoints in `spark`. Give the query's own session (`query_session`), not
    the user's.
    """
    folder = Path(path).absolute()
    why_not = _why_not(spark, str(path)) or _install(spark, folder)
    if why_not:
        logger.info("the checkpoint %s stays with Hadoop's own files: %s", path, why_not)
        return str(path)
    spark.conf.set(_FILE_MANAGER, _BY_FILE_SYSTEM)
    return f"{SCHEME}://{folder}"


def _why_not(spark: SparkSession, path: str) -> str:
    if "://" in path or path.startswith("file:"):
        return "it is a URL, not a path"
    if getattr(spark, "_jsparkSession", None) is None:
        return "the session is not in this process (Spark Connect)"
    if not spark.sparkContext._jsc.sc().isLocal():  # noqa: SLF001 - the public `master` is a text to parse
        return f"the master is {spark.sparkContext.master}, and tasks elsewhere would lack the class"
    return ""


def _install(spark: SparkSession, folder: Path) -> str:
    """Compile the class unless the JVM has it, and try it on `folder`; return the error, or ""."""
    try:
        with _compiling:
            conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - it has no public name
            if conf.get(f"fs.{SCHEME}.impl") is None:
                _compile(spark, conf)
        _try(spark, folder)
    except (Py4JError, OSError) as error:
        return str(error)
    return ""


def _compile(spark: SparkSession, conf: object) -> None:
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # noqa: SLF001 - it has no public name
    compiler.setParentClassLoader(conf.getClassLoader())  # type: ignore[attr-defined]
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    conf.setClassLoader(compiler.getClassLoader())  # type: ignore[attr-defined]
    conf.set(f"fs.{SCHEME}.impl", "QuietFiles")  # type: ignore[attr-defined]


def _try(spark: SparkSession, folder: Path) -> None:
    """Create the folder and rename a file in it, as a checkpoint does."""
    path = spark._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001 - it has no public name
    conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - the same
    files = path(f"{SCHEME}://{folder}").getFileSystem(conf)
    first, last = (path(f"{SCHEME}://{folder}/.quiet-{step}") for step in ("first", "last"))
    files.create(first, True).close()  # noqa: FBT003 - Java has no keywords: overwrite
    files.rename(first, last)
    found = files.exists(last)
    files.delete(last, False)  # noqa: FBT003 - recursive
    if not found:
        raise OSError(f"a file renamed in {folder} is not there")
