"""The only room that speaks py4j: Python values in and out, Java exceptions translated."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from neve.lake.jvm.launch import interrupt_handler_kept, launch_jvm

logger = logging.getLogger(__name__)

JavaError = (Py4JError, PySparkException)

_MOST_CAUSES = 20
# What PySpark asks Java for by name with every column, function and list of columns.
_CLASSES_OF_QUERIES = ("functions", "org.apache.spark.sql.functions", "PythonUtils")


def start_context(
    launch: dict[str, str], conf: dict[str, str], log: IO[bytes] | None
) -> SparkContext:
    """Start Spark in this process, with what the JVM itself writes going to `log`.

    `launch` is what the JVM must know before it runs and stands on its command line, where other
    users can read it; everything else is handed over afterwards. A second start reuses the JVM.
    """
    if SparkContext._gateway is not None and not _is_alive(SparkContext._gateway):
        _forget_jvm()
    complete = SparkConf(loadDefaults=False).setAll([*launch.items(), *conf.items()])
    gateway = SparkContext._gateway or launch_jvm(
        SparkConf(loadDefaults=False).setAll(list(launch.items())),
        # Standard output is ours: a JSON document there must stay one.
        {"stdout": log, "stderr": log} if log else {"stdout": sys.stderr},
    )
    with interrupt_handler_kept():
        context = SparkContext(gateway=gateway, conf=complete)
    _remember_classes(context)
    return context


def _remember_classes(context: SparkContext) -> None:
    """Look up once what queries are built with.

    For a name that is not a class, Java searches every jar: `functions` is tried in each imported
    package, and `org`, `org.apache` and so on are tried one after the other. That was a tenth of
    what the JVM did during merges of little data.
    """
    jvm: Any = context._jvm
    for name in _CLASSES_OF_QUERIES:
        setattr(jvm, name, getattr(jvm, name))
    jvm.org = jvm.org
    jvm.org.apache = jvm.org.apache
    for name in ("iceberg", "spark"):
        setattr(jvm.org.apache, name, getattr(jvm.org.apache, name))
    jvm.org.apache.spark.sql = jvm.org.apache.spark.sql


def on_own_connection(work: Callable[[], None], seconds: float | None = None) -> bool:
    """Do something on a thread of its own, which has a connection of its own to Java.

    A call that was interrupted still runs in Java, and this thread's connection waits for its
    answer: another call over it would wait, too. An error is survived: what could not be closed
    ends with the process.

    Args:
        seconds: how long to wait for it.

    Returns:
        Whether it came to an end in that time.
    """

    def work_and_survive() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - see above
            logger.info("Spark was not closed cleanly: %s", error)

    daemon = seconds is not None
    worker = threading.Thread(target=work_and_survive, name="neve-closes-spark", daemon=daemon)
    worker.start()
    worker.join(seconds)
    return not worker.is_alive()


def terminate(context: SparkContext) -> None:
    """End a JVM that does not stop in time; its shutdown hooks still run."""
    process = getattr(context._gateway, "proc", None)
    if process is not None:
        process.terminate()


def end_jvm() -> None:
    """End the JVM of this process and wait for it: what it does at its end is done then."""
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        # First, or objects that Python frees from now on are told to a JVM that is gone.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    _forget_jvm()


def stop_context(context: SparkContext) -> None:
    """Cancel what runs and stop Spark."""
    context.cancelAllJobs()
    context.stop()


def is_running(context: SparkContext) -> bool:
    """Tell whether a context was not stopped since, and its JVM is alive."""
    return context._jsc is not None and _is_alive(context._gateway)


def _is_alive(gateway: Any) -> bool:
    # One that was started by spark-submit is not ours to ask.
    process = getattr(gateway, "proc", None)
    return process is None or process.poll() is None


def _forget_jvm() -> None:
    """Let go of a JVM that died, so that PySpark can start another."""
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def close_catalogs(session: SparkSession) -> None:
    """Close the Iceberg catalogs a session has used: Spark itself keeps their connections open."""
    gateway: Any = session.sparkContext._gateway
    scala = gateway.jvm.scala
    manager = session._jsparkSession.sessionState().catalogManager()
    used = manager.listCatalogs(scala.Option.empty())
    for name in scala.jdk.javaapi.CollectionConverters.asJava(used):
        plugin = manager.catalog(name)
        if is_instance_of(gateway, plugin, "org.apache.iceberg.spark.source.HasIcebergCatalog"):
            catalog = plugin.icebergCatalog()
            if is_instance_of(gateway, catalog, "java.io.Closeable"):
                catalog.close()


def messages(error: BaseException) -> list[str]:
    """Return `Class: message` for a Java exception and each of its causes, outermost first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[str] = []
    while java is not None and len(found) < _MOST_CAUSES:
        found.append(_first_line(java.toString()))
        java = java.getCause()
    return found or [_first_line(_own_text(error))]


def _own_text(error: BaseException) -> str:
    # str() of a Py4JJavaError carries the whole Java stack.
    if isinstance(error, Py4JJavaError):
        return str(error.errmsg)
    return str(error)


def _first_line(text: Any) -> str:
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "")
