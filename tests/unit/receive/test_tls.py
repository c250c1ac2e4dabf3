"""Certificates that cannot be used: the message names the file and its key in neve.yaml."""

import os
import shutil

import pytest

from neve.errors import ConfigError
from neve.receive.spec import TlsSpec
from neve.receive.tls import server_context
from tests.support.certificates import make_certificates


@pytest.fixture
def files(tmp_path):
    made = make_certificates(tmp_path)
    return {"cert": made.server_cert, "key": made.server_key, "client_ca": made.ca_cert}


def refusal(files):
    with pytest.raises(ConfigError) as caught:
        server_context(TlsSpec(**{name: str(path) for name, path in files.items()}), ["h2"])
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("name", ["cert", "key", "client_ca"])
def test_each_file_is_named_when_it_cannot_be_used(files, name, tmp_path):
    path = files[name]
    path.unlink()
    start = f"receive.tls cannot be used: {name} {path} "
    assert refusal(files) == f"{start}cannot be read: No such file or directory"
    path.mkdir()
    assert refusal(files) == f"{start}cannot be read: Is a directory"
    path.rmdir()
    path.write_bytes(os.urandom(100))
    assert refusal(files) == f"{start}is not a PEM file"


def test_a_key_of_another_certificate_is_named_with_it(files, tmp_path):
    shutil.copy(make_certificates(tmp_path).client_key, files["key"])
    said = refusal(files)
    assert f"cert {files['cert']} and key {files['key']}: " in said
    assert "KEY_VALUES_MISMATCH" in said
