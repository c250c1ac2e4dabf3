"""One open lake for each catalog profile, and one whose commits go wrong."""

from __future__ import annotations

import uuid

import pytest

import neve
from tests.support.catalog_faults import CommitFaults
from tests.support.gates import BearerToken, ClientCredentials, S3Tables
from tests.support.lakes import (
    CLIENT,
    CLIENT_SECRET,
    TABLE_BUCKET,
    TOKEN,
    postgres_settings,
    rest_settings,
    s3tables_settings,
)
from tests.support.proxy import running_proxy
from tests.support.servers import REGION
from tests.support.sigv4 import Verifier

# OAuth2 is the REST catalog with another way to get a token: test_catalogs.py names it for the test
# in which both engines read and write.
PROFILES = (
    "sqlite",
    "postgres",
    "rest",
    "s3tables",
    pytest.param("oauth2", marks=pytest.mark.soak),
)


@pytest.fixture(scope="session")
def token_proxy(rest_catalog):
    with running_proxy(rest_catalog.port, [BearerToken(TOKEN)]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def oauth2_proxy(rest_catalog):
    with running_proxy(rest_catalog.port, [ClientCredentials(CLIENT, CLIENT_SECRET)]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def s3tables_gate(s3):
    return S3Tables(Verifier(s3.access_key, s3.secret_key, REGION, "s3tables"), TABLE_BUCKET)


@pytest.fixture(scope="session")
def s3tables_proxy(rest_catalog, s3tables_gate):
    with running_proxy(rest_catalog.port, [s3tables_gate]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def sqlite_lake(embedded_lake):
    return embedded_lake


@pytest.fixture(scope="session")
def postgres_lake(embedded_lake, postgres, s3):
    with neve.open(postgres_settings(postgres, s3)) as lake:
        yield lake


@pytest.fixture(scope="session")
def rest_lake(embedded_lake, token_proxy, s3):
    with neve.open(rest_settings(token_proxy.uri, s3, token=TOKEN)) as lake:
        yield lake


@pytest.fixture(scope="session")
def oauth2_lake(embedded_lake, oauth2_proxy, s3):
    credential = f"{CLIENT}:{CLIENT_SECRET}"
    with neve.open(rest_settings(oauth2_proxy.uri, s3, credential=credential)) as lake:
        yield lake


@pytest.fixture(scope="session")
def s3tables_lake(embedded_lake, s3tables_proxy, s3):
    with neve.open(s3tables_settings(s3tables_proxy.uri, s3)) as lake:
        yield lake


@pytest.fixture(scope="session")
def commit_faults():
    return CommitFaults()


@pytest.fixture(scope="session")
def faulty_lake(rest_catalog, s3, commit_faults):
    """A lake on the REST catalog and S3 whose commits go wrong as `faults` says."""
    with (
        running_proxy(rest_catalog.port, [commit_faults]) as proxy,
        neve.open(rest_settings(proxy.uri, s3)) as lake,
    ):
        yield lake


@pytest.fixture
def faults(commit_faults):
    """What goes wrong with the commits of `faulty_lake`: at first nothing."""
    commit_faults.expect("nothing")
    return commit_faults


@pytest.fixture(params=PROFILES)
def lake(request, embedded_lake):
    """An open lake, on each catalog profile in turn."""
    return request.getfixturevalue(f"{request.param}_lake")


@pytest.fixture
def namespace(lake):
    """A namespace that no other test knows."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    lake.catalog().create_namespace(name)
    return name
