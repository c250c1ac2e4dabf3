"""Unit tests see no configuration but their own."""

import os

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("NEVE_") and name != "NEVE_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
