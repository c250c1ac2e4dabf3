"""The class archive of Spark's JVM: what it is named after, when it is used, what is removed."""

import os
import time

import pytest

from neve.lake import class_archive

OLD = time.time() - 7 * 86400


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A Java, a Spark and a further jar, as far as their files tell them from others."""
    for name in ("java/lib/modules", "spark/jars/spark.jar", "java/bin/java", "jars/iceberg.jar"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"1")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("NEVE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def archive_in(directory):
    return class_archive.archive_of(
        directory / "java" / "bin" / "java", [directory / "jars" / "iceberg.jar"]
    )


def used(directory):
    return class_archive.use_options(
        directory / "java" / "bin" / "java", [directory / "jars" / "iceberg.jar"]
    )


def write(archive, content=b"classes"):
    file = archive.scratch() / "file"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("file", ["java/lib/modules", "spark/jars/spark.jar", "jars/iceberg.jar"])
def test_another_java_or_jar_has_another_archive(environment, file):
    before = archive_in(environment)
    assert archive_in(environment) == before
    replaced = environment / file
    os.utime(replaced, (OLD, OLD))
    touched = archive_in(environment)
    replaced.write_bytes(b"22")
    os.utime(replaced, (OLD, OLD))
    assert len({before, touched, archive_in(environment)}) == 3


def test_a_further_jar_or_another_place_has_another_archive(environment, monkeypatch):
    before = archive_in(environment)
    (environment / "spark" / "jars" / "more.jar").write_bytes(b"1")
    more = archive_in(environment)
    (environment / "spark").rename(environment / "moved")
    monkeypatch.setenv("SPARK_HOME", str(environment / "moved"))
    assert len({before, more, archive_in(environment)}) == 3


def test_java_behind_a_link_is_the_java_it_leads_to(environment):
    link = environment / "usr-bin-java"
    link.symlink_to(environment / "java" / "bin" / "java")
    jars = [environment / "jars" / "iceberg.jar"]
    assert class_archive.archive_of(link, jars) == archive_in(environment)


def test_an_archive_is_used_when_it_is_finished_and_its_use_is_noted(environment):
    archive = archive_in(environment)
    file = write(archive)
    assert used(environment) == []
    archive.keep(file)
    os.utime(archive.find(), (OLD, OLD))
    assert f'"-XX:SharedArchiveFile={archive.find()}"' in used(environment)
    assert archive.find().stat().st_mtime > OLD + 86400


def test_an_archive_that_lost_a_part_is_not_used_and_made_again(environment):
    archive = archive_in(environment)
    archive.keep(write(archive))
    os.truncate(archive.find(), 3)
    assert used(environment) == []
    archive.keep(write(archive))
    assert used(environment) != []


def test_without_javas_class_files_there_is_no_archive_and_no_error(environment):
    archive = archive_in(environment)
    archive.keep(write(archive))
    (environment / "java" / "lib" / "modules").unlink()
    assert used(environment) == []


def test_the_archives_used_last_are_kept(environment):
    archive = archive_in(environment)
    file = write(archive)
    earlier = [archive.directory / f"{number}.jsa" for number in range(6)]
    for number, path in enumerate(earlier):
        path.write_bytes(b"classes")
        os.utime(path, (OLD + number, OLD + number))
    abandoned = write(archive).parent
    os.utime(abandoned, (OLD, OLD))
    archive.keep(file)
    kept = {archive.find(), *earlier[6 - class_archive.MOST_ARCHIVES + 1 :]}
    assert set(archive.directory.iterdir()) == {*kept, file.parent}
