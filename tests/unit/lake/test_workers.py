"""Archives that did not change are not read again at each task."""

import sys
import zipfile
import zipimport

import pytest

from neve.lake import workers


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", workers._read_again)
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("first_module.py", "VALUE = 1")
    monkeypatch.syspath_prepend(str(path))
    yield path
    for name in ("first_module", "second_module"):
        sys.modules.pop(name, None)


def test_a_directory_is_read_again_only_when_its_archive_has_changed(archive, monkeypatch):
    read = []
    before = workers._read_again
    monkeypatch.setattr(workers, "_read_again", lambda one: (read.append(one.archive), before(one)))
    workers.keep_zip_directories()
    importer = zipimport.zipimporter(str(archive))
    for _ in range(3):
        importer.invalidate_caches()
    assert read == [str(archive)]
    with zipfile.ZipFile(archive, "a") as written:
        written.writestr("second_module.py", "VALUE = 2")
    importer.invalidate_caches()
    assert read == [str(archive)] * 2
    assert importer.find_spec("second_module") is not None
    archive.unlink()
    importer.invalidate_caches()
    assert importer.find_spec("second_module") is None
