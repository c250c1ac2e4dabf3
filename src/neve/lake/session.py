"""The one place that makes a Spark session."""

from __future__ import annotations

import locale
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, TYPE_CHECKING

from neve.config import SparkSettings
from neve.errors import SetupError
from neve.lake import class_archive, jvm
from neve.lake.executors import executor_conf
from neve.lake.jars import ensure_jars
from neve.lake.java import find_java
from neve.lake.shared_paths import probe_shared_paths

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
# Of its own, for services to print.
started_logger = logging.getLogger(f"{__name__}.started")

_IVY_SETTINGS = "spark.jars.ivySettings"
_UTF8 = "C.UTF-8"
# The JVM reads these before any code of ours can run in it.
_LAUNCH_KEYS = ("spark.driver.", "spark.jars", "spark.master", "spark.submit.")


class SparkProcess:
    """The JVM of this process and how many lakes use it; Spark allows one context a process."""

    def __init__(self) -> None:
        self.context: SparkContext | None = None
        self.users = 0
        # What the running context's executors were seen to share.
        self.probed_paths: frozenset[str] = frozenset()
        # Lakes on several threads may ask first at the same time.
        self.lock = threading.RLock()

    def acquire(self, settings: SparkSettings, report: Callable[[str], None]) -> SparkContext:
        """Return the running context, starting it first if nobody has."""
        with self.lock:
            if self.context is None or not jvm.is_running(self.context):
                self.context = _start(settings, report)
                self.probed_paths = frozenset()
            elif self.context.master != settings.master:
                logger.warning(
                    "Spark already runs on %s in this process; %s is not used",
                    self.context.master,
                    settings.master,
                )
            self.users += 1
            return self.context

    def release(self) -> None:
        """Stop Spark when its last user leaves."""
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.context is not None:
                if jvm.is_running(self.context):
                    jvm.stop_context(self.context)
                self.context = None


SPARK = SparkProcess()


def new_session(
    settings: SparkSettings, conf: Mapping[str, str], report: Callable[[str], None]
) -> SparkSession:
    """Return a session of its own, so that two lakes in one process share no settings."""
    from pyspark.sql import SparkSession

    with SPARK.lock:
        context = SPARK.acquire(settings, report)
        session = SparkSession(context).newSession()
        _require_shared_paths(session, settings)
    for key, value in conf.items():
        session.conf.set(key, value)
    return session


def _require_shared_paths(session: SparkSession, settings: SparkSettings) -> None:
    """Check once for each Spark that executors share what the configuration says they do."""
    unproven = frozenset(settings.shared_paths) - SPARK.probed_paths
    if is_local(settings.master) or not unproven:
        return
    try:
        probe_shared_paths(session, sorted(unproven))
    except BaseException:
        end_session(session)
        raise
    SPARK.probed_paths |= unproven


def end_session(
    session: SparkSession, seconds: float | None = None, clones: Iterable[SparkSession] = ()
) -> None:
    """Close a session's catalogs; Spark stops when nobody else uses it.

    Args:
        seconds: how long that may take; a JVM that needs longer is ended from outside.
        clones: sessions that were made of it, whose catalogs are closed, too.
    """

    def end() -> None:
        try:
            for each in (*clones, session):
                if jvm.is_running(each.sparkContext):
                    jvm.close_catalogs(each)
        finally:
            SPARK.release()

    if not jvm.on_own_connection(end, seconds):
        jvm.terminate(session.sparkContext)


def is_local(master: str) -> bool:
    return master.startswith("local")


def _start(settings: SparkSettings, report: Callable[[str], None]) -> SparkContext:
    java = find_java()
    jars = ensure_jars(java, report, settings.conf.get(_IVY_SETTINGS))
    report("starting Spark")
    name_files_in_utf8()
    started = time.monotonic()
    with as_file(files("neve.lake") / "log4j2.properties") as logging_properties:
        java_options = _java_options(java, jars, logging_properties)
        conf = _defaults(settings.master, jars, java_options)
        if not is_local(settings.master):
            conf |= {**executor_conf(report), "spark.executorEnv.LC_ALL": _UTF8}
        conf |= settings.conf
        launch = {key: value for key, value in conf.items() if key.startswith(_LAUNCH_KEYS)}
        rest = {key: value for key, value in conf.items() if key not in launch}
        with tempfile.TemporaryFile(prefix="neve-spark-") as log:
            shown = logger.isEnabledFor(logging.INFO)
            try:
                context = jvm.start_context(launch, rest, None if shown else log)
            except jvm.JavaError as error:
                raise SetupError(
                    f"Spark did not start on {settings.master}: {_reason(error, log)}",
                    hint="run again with -v for Spark's own log; check spark.master and spark.conf",
                ) from error
    # PySpark logs each failed statement as JSON with its Java stack; errors are ours to tell.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    context.pythonExec = _executor_python(settings)
    # Not a step of the work, which a spinner would show for as long as the next one takes.
    started_logger.info("Spark is ready after %.1f s", time.monotonic() - started)
    return context


def name_files_in_utf8() -> None:
    """Give Java a locale of UTF-8: it names files by it, and with another `ü` would be `?`."""
    if locale.nl_langinfo(locale.CODESET).upper() != "UTF-8":
        os.environ["LC_ALL"] = _UTF8


def _executor_python(settings: SparkSettings) -> str:
    """Name the Python that runs tasks: the user's choice, else this very environment's.

    On a cluster this environment's path means nothing; its version must still be the same.
    """
    named = settings.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if named:
        return named
    if is_local(settings.master):
        return sys.executable
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _java_options(java: Path, jars: list[Path], logging_properties: Path) -> str:
    return " ".join(
        (
            f"-Dlog4j2.configurationFile={logging_properties.as_uri()}",
            "-Duser.timezone=UTC",
            *class_archive.use_options(java, jars),
        )
    )


def _defaults(master: str, jars: list[Path], java_options: str) -> dict[str, str]:
    conf = {
        "spark.app.name": "neve",
        "spark.master": master,
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Else each function of a column asks the JVM four times, for where it was called.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        # Spark writes down every plan for its pages, which nobody sees; this is the shortest form.
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # 200 tasks a shuffle, Spark's default, are mostly overhead on one machine.
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    return conf


def _reason(error: Exception, log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    telling = [line for line in lines if "Exception" in line or line.startswith("Error")]
    return telling[0] if telling else jvm.messages(error)[-1]
