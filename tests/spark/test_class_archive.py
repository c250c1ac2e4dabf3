"""The class archive in a real JVM: `python -m tests.support.install` has made it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from neve.lake import class_archive
from neve.lake.jars import ensure_jars, spark_home
from neve.lake.java import find_java


@pytest.fixture(scope="module")
def archive():
    java = find_java()
    return class_archive.archive_of(java, ensure_jars(java, print)).find()


@pytest.fixture(scope="module")
def jvm(embedded_lake):
    return embedded_lake.spark.sparkContext._gateway


def test_the_jvm_of_spark_has_mapped_the_archive(jvm, archive):
    assert f" {archive}\n" in Path(f"/proc/{jvm.proc.pid}/maps").read_text()


def damages(archive):
    """Damage a copy of an archive in one way after the other; its size stays."""
    size = archive.stat().st_size
    with archive.open("r+b", buffering=0) as file:
        file.seek(size // 2)
        (byte,) = file.read(1)
        file.seek(size // 2)
        file.write(bytes([byte ^ 0xFF]))
        yield "one byte differs"
        file.truncate(size // 2)
        file.truncate(size)
        yield "half of it is zeros"
        file.seek(0)
        file.write(b"not an archive\n" * 10_000)
        yield "another file"


def test_a_damaged_archive_is_noticed_and_costs_no_word(jvm, archive, tmp_path, monkeypatch):
    java = find_java()
    classes = jvm.jvm.System.getProperty("java.class.path")
    monkeypatch.setenv("NEVE_CACHE", str(tmp_path))
    copies = class_archive.archive_of(java, [])
    copy = Path(shutil.copyfile(archive, copies.scratch() / "copy"))
    copies.keep(copy)

    def start(*options):
        given = [option.strip('"') for option in class_archive.use_options(java, [])]
        answer = subprocess.run(
            [java, *given, *options, "-cp", classes, "-version"],
            cwd=tmp_path,  # a JVM that crashes writes a report
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert given
        return answer.returncode, answer.stdout, answer.stderr.replace(b", sharing", b"")

    # With -Xshare:on there is no JVM without the archive.
    assert start("-Xshare:on")[0] == 0
    silent = start()
    for damage in damages(copies.find()):
        assert start("-Xshare:on")[0] != 0, damage
        assert start() == silent, damage


def test_a_cache_of_any_name_reaches_the_jvm(tmp_path):
    """Through Spark's launcher, which splits options at spaces and knows quotes."""
    file = tmp_path / 'two  words, "quotes" and \\ ' / "a.jsa"
    (option, *_) = class_archive.make_options(file)
    answer = subprocess.run(
        [
            *(find_java(), "-cp", spark_home() / "jars" / "*", "org.apache.spark.launcher.Main"),
            *("org.apache.spark.deploy.SparkSubmit", "--conf"),
            *(f"spark.driver.extraJavaOptions={option}", "pyspark-shell"),
        ],
        env={"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"-XX:ArchiveClassesAtExit={file}" in answer.stdout.split("\0")
