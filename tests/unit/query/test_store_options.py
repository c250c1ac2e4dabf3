"""What DuckDB is told of an object store."""

from neve.query.duckdb_tables import store_options


def test_a_store_with_an_endpoint():
    properties = {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "eu-central-1",
    }
    assert store_options(properties) == {
        "KEY_ID": "key",
        "SECRET": "secret",
        "REGION": "eu-central-1",
        "ENDPOINT": "127.0.0.1:9000",
        "USE_SSL": "false",
        "URL_STYLE": "path",
    }


def test_credentials_that_a_catalog_gives_for_a_table():
    properties = {
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "client.region": "us-east-1",
    }
    assert store_options(properties) == {
        "KEY_ID": "key",
        "SECRET": "secret",
        "SESSION_TOKEN": "token",
        "REGION": "us-east-1",
    }


def test_credentials_of_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    options = store_options({"s3.region": "us-east-1"})
    assert (options["KEY_ID"], options["SECRET"]) == ("of the environment", "secret")
