"""One Spark a process, whoever asks first and from whichever threads."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from neve.config import SparkSettings
from neve.lake import jvm, session


class Context:
    """Stands for a running Spark."""

    master = SparkSettings().master


def test_lakes_on_several_threads_share_one_start(monkeypatch):
    started, stopped = [], []

    def start(settings, report):
        time.sleep(0.05)  # as Spark takes its time, for the others to come in between
        started.append(Context())
        return started[-1]

    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setattr(session.jvm, "is_running", lambda context: context not in stopped)
    monkeypatch.setattr(session.jvm, "stop_context", stopped.append)
    spark = session.SparkProcess()
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda _: spark.acquire(SparkSettings(), print), range(4)))
    assert given == started * 4
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: spark.release(), range(4)))
    assert stopped == started
    assert len(started) == 1


def test_an_error_while_spark_is_closed_is_survived(caplog):
    """As after Ctrl-C: pytest fails a test whose thread raises."""

    def close():
        raise RuntimeError("the connection is gone")

    with caplog.at_level("INFO", logger=jvm.logger.name):
        jvm.on_own_connection(close)
    assert "not closed cleanly: the connection is gone" in caplog.text


def test_java_names_files_in_utf_8_whatever_the_locale_is():
    code = (
        "import os; from neve.lake.session import name_files_in_utf8; name_files_in_utf8(); "
        "print(os.environ['LC_ALL'])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LC_ALL": "C"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "C.UTF-8\n"
