"""What each catalog's real errors say of a commit. Most classes and texts were recorded from the
servers and drivers themselves: the REST fixture of Iceberg 1.12 behind a proxy with faults,
PostgreSQL, SQLite, an S3 server. Time-outs, full disks, and answers that these servers do not give
(408, 412, 429, 520) are written as the libraries' sources raise them. Java's are the lines of the
exception and its causes, the outermost first."""

import psycopg2
import psycopg2.errors
import pydantic
import pytest
import requests
import sqlalchemy.exc
import urllib3.exceptions
from pyiceberg import exceptions as iceberg
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.table import CommitTableResponse

from neve.config import Settings
from neve.errors import (
    CatalogError,
    Code,
    ConflictError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from neve.lake.commit_errors import CommitOutcome, committing, outcome_of, outcome_of_java
from neve.lake.profile import CatalogProfile

REFUSED, FAILED, UNKNOWN = CommitOutcome.REFUSED, CommitOutcome.FAILED, CommitOutcome.UNKNOWN
UPDATE = "UPDATE iceberg_tables SET metadata_location=?"
CATALOGS = {
    "rest": {"type": "rest", "uri": "http://127.0.0.1:1"},
    "sqlite": {"type": "sqlite"},
    "postgres": {"type": "postgres", "uri": "postgresql://h/d", "warehouse": "s3://b/w"},
    "s3tables": {
        "type": "s3tables",
        "warehouse": "arn:aws:s3tables:eu-central-1:111122223333:bucket/lake",
    },
}


def profile(kind):
    settings = Settings.model_validate({"catalog": CATALOGS[kind]})
    return CatalogProfile("lake", settings.catalog, settings.storage)


def answer(status, message="injected", kind="Fault"):
    """What PyIceberg raises for an answer of a REST catalog to a commit."""
    response = requests.Response()
    response.status_code = status
    response._content = (
        f'{{"error": {{"message": "{message}", "type": "{kind}", "code": {status}}}}}'.encode()
    )
    own = dict.fromkeys((500, 502, 504), iceberg.CommitStateUnknownException)
    fault = requests.exceptions.HTTPError(response=response)
    with pytest.raises(Exception, match=message) as raised:
        _handle_non_200_response(fault, {409: iceberg.CommitFailedException, **own})
    return raised.value


def connection(reason):
    pool = urllib3.HTTPConnectionPool("127.0.0.1", 1)
    return requests.exceptions.ConnectionError(urllib3.exceptions.MaxRetryError(pool, "/", reason))


def cut():
    with pytest.raises(pydantic.ValidationError) as raised:
        CommitTableResponse.model_validate_json('{"metadata-location": "s3://lake/x", "meta')
    return raised.value


def database(text, statement=UPDATE, kind=sqlalchemy.exc.OperationalError, orig=None):
    return kind(statement, {}, orig or Exception(text))


def postgres(kind, text="as PostgreSQL says it", statement=UPDATE):
    class WithCode(kind):
        pgcode = {
            psycopg2.errors.SerializationFailure: "40001",
            psycopg2.errors.UniqueViolation: "23505",
            psycopg2.errors.QueryCanceled: "57014",
            psycopg2.errors.ReadOnlySqlTransaction: "25006",
            psycopg2.errors.AdminShutdown: "57P01",
            psycopg2.errors.DiskFull: "53100",
        }.get(kind)

    return database(text, statement, orig=WithCode(text))


CLOSED = "server closed the connection unexpectedly\n\tThis probably means the server terminated"
REFUSED_CONNECTION = 'connection to server at "127.0.0.1", port 43627 failed: Connection refused'
NO_BUCKET = (
    "When initiating multiple part upload for key 'x/metadata/00003.metadata.json' in bucket "
    "'nowhere': AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation"
)
NETWORK = (
    "When initiating multiple part upload for key 'x' in bucket 'lake': AWS Error "
    "NETWORK_CONNECTION during CreateMultipartUpload operation: curlCode: 28, Timeout was reached"
)
OLDER = "Cannot add snapshot with sequence number 2 older than last sequence number 2"

PYTHON = [
    ("rest", "400", answer(400), FAILED),
    ("rest", "400, a sequence number that is taken", answer(400, OLDER), REFUSED),
    (
        "rest",
        "400, the same request twice",
        answer(400, "Snapshot already exists for id: 225812037777728567", "ValidationException"),
        REFUSED,
    ),
    (
        "rest",
        "400, a snapshot that was expired",
        answer(400, "Cannot set main to unknown snapshot: 12345", "ValidationException"),
        REFUSED,
    ),
    (
        "postgres",
        "closed, of a table with a telling name",
        database(f'{CLOSED} "is locked" connection to server at x failed:', None),
        UNKNOWN,
    ),
    ("rest", "401", answer(401), FAILED),
    ("rest", "403", answer(403), FAILED),
    ("rest", "404", answer(404, "Table does not exist: a.t", "NoSuchTableException"), FAILED),
    ("rest", "405", answer(405), FAILED),
    ("rest", "408", answer(408), UNKNOWN),
    ("rest", "409", answer(409), REFUSED),
    ("rest", "412", answer(412), REFUSED),
    ("rest", "422", answer(422), FAILED),
    ("rest", "429", answer(429), FAILED),
    ("rest", "500", answer(500), UNKNOWN),
    ("rest", "501", answer(501), FAILED),
    ("rest", "502", answer(502), UNKNOWN),
    ("rest", "503", answer(503), UNKNOWN),
    ("rest", "504", answer(504), UNKNOWN),
    ("rest", "520, of a proxy", answer(520), UNKNOWN),
    (
        "s3tables",
        "409",
        answer(409, "Requirement failed: branch main has changed", "CommitFailedException"),
        REFUSED,
    ),
    ("s3tables", "429", answer(429, "Rate exceeded", "TooManyRequestsException"), FAILED),
    (
        "rest",
        "connection refused",
        connection(urllib3.exceptions.NewConnectionError(None, "[Errno 111] Connection refused")),
        FAILED,
    ),
    (
        "rest",
        "connect time-out",
        requests.exceptions.ConnectTimeout(
            urllib3.exceptions.MaxRetryError(
                None, "/", urllib3.exceptions.ConnectTimeoutError(None, "timed out")
            )
        ),
        FAILED,
    ),
    (
        "rest",
        "certificate",
        requests.exceptions.SSLError(
            urllib3.exceptions.MaxRetryError(
                None, "/", urllib3.exceptions.SSLError("certificate verify failed: self-signed")
            )
        ),
        FAILED,
    ),
    (
        "rest",
        "reset after sending",
        requests.exceptions.ConnectionError(
            urllib3.exceptions.ProtocolError("Connection aborted.", ConnectionResetError(104, ""))
        ),
        UNKNOWN,
    ),
    (
        "rest",
        "read time-out",
        requests.exceptions.ReadTimeout(
            urllib3.exceptions.ReadTimeoutError(None, "/", "Read timed out. (read timeout=1)")
        ),
        UNKNOWN,
    ),
    ("rest", "answer cut in its body", requests.exceptions.ChunkedEncodingError(), UNKNOWN),
    ("rest", "answer cut in its document", cut(), UNKNOWN),
    ("rest", "a socket that broke", OSError(104, "Connection reset by peer"), UNKNOWN),
    ("sqlite", "busy", database("database is locked"), REFUSED),
    ("sqlite", "busy in COMMIT", database("database is locked", None), REFUSED),
    ("sqlite", "locked", database("database table is locked"), REFUSED),
    ("sqlite", "readonly", database("attempt to write a readonly database"), FAILED),
    ("sqlite", "full in COMMIT", database("database or disk is full", None), FAILED),
    ("sqlite", "input or output in COMMIT", database("disk I/O error", None), UNKNOWN),
    (
        "sqlite",
        "constraint",
        database(
            "UNIQUE constraint failed: iceberg_tables.catalog_name, iceberg_tables.table_name",
            kind=sqlalchemy.exc.IntegrityError,
        ),
        REFUSED,
    ),
    (
        "sqlite",
        "another swapped",
        iceberg.CommitFailedException("Table has been updated by another process: a.t"),
        REFUSED,
    ),
    ("sqlite", "a sequence number that is taken", ValueError(OLDER), REFUSED),
    ("sqlite", "a snapshot id twice", ValueError("Snapshot with id 5 already exists"), REFUSED),
    ("sqlite", "no such ref", ValueError("Cannot set main to unknown snapshot 5"), REFUSED),
    ("sqlite", "a bad update", ValueError("Schema with id 7 does not exist"), FAILED),
    ("sqlite", "metadata not written", NotADirectoryError(20, "Not a directory"), FAILED),
    ("sqlite", "dropped", iceberg.NoSuchTableError("Table does not exist: a.t"), FAILED),
    ("postgres", "serialization", postgres(psycopg2.errors.SerializationFailure), REFUSED),
    ("postgres", "unique", postgres(psycopg2.errors.UniqueViolation), REFUSED),
    ("postgres", "cancelled", postgres(psycopg2.errors.QueryCanceled), REFUSED),
    ("postgres", "read only", postgres(psycopg2.errors.ReadOnlySqlTransaction), FAILED),
    ("postgres", "full in COMMIT", postgres(psycopg2.errors.DiskFull, statement=None), FAILED),
    ("postgres", "cut in the UPDATE", postgres(psycopg2.OperationalError, CLOSED), FAILED),
    ("postgres", "cut in COMMIT", postgres(psycopg2.OperationalError, CLOSED, None), UNKNOWN),
    ("postgres", "shut down in COMMIT", postgres(psycopg2.errors.AdminShutdown, "", None), UNKNOWN),
    (
        "postgres",
        "connect refused",
        postgres(psycopg2.OperationalError, REFUSED_CONNECTION, None),
        FAILED,
    ),
    ("postgres", "no bucket for the metadata", OSError(NO_BUCKET), FAILED),
    ("postgres", "store away before the commit", OSError(NETWORK), FAILED),
]

ICEBERG = "org.apache.iceberg.exceptions."
SHADED = "org.apache.iceberg.shaded.org.apache.hc."
POST = f"{ICEBERG}RESTException: Error occurred while processing POST request"
SQL = "org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure"
PSQL = "org.postgresql.util.PSQLException: "
JAVA = [
    ("400", [f"{ICEBERG}BadRequestException: Malformed request: injected"], FAILED),
    ("400, a race", [f"{ICEBERG}BadRequestException: Malformed request: {OLDER}"], REFUSED),
    ("401", [f"{ICEBERG}NotAuthorizedException: Not authorized: injected"], FAILED),
    ("403", [f"{ICEBERG}ForbiddenException: Forbidden: injected"], FAILED),
    ("404", [f"{ICEBERG}NoSuchTableException: Table does not exist: a.t"], FAILED),
    ("405", [f"{ICEBERG}RESTException: Unable to process (code: 405, type: F): injected"], FAILED),
    ("408", [f"{ICEBERG}RESTException: Unable to process (code: 408, type: F): injected"], UNKNOWN),
    ("409", [f"{ICEBERG}CommitFailedException: Commit failed: injected"], REFUSED),
    ("501", ["java.lang.UnsupportedOperationException: injected"], FAILED),
    *(
        (
            f"{status}",
            [
                f"{ICEBERG}CommitStateUnknownException: Service failed: {status}: injected",
                f"{ICEBERG}ServiceFailureException: Service failed: {status}: injected",
            ],
            UNKNOWN,
        )
        for status in (500, 502, 503, 504)
    ),
    (
        "hung up",
        [POST, f"{SHADED}core5.http.NoHttpResponseException: 127.0.0.1:33057 failed to respond"],
        UNKNOWN,
    ),
    (
        "cut",
        [
            POST,
            "org.apache.iceberg.shaded.com.fasterxml.jackson.core.io.JsonEOFException: Unexpected",
        ],
        UNKNOWN,
    ),
    ("read time-out", [POST, "java.net.SocketTimeoutException: Read timed out"], UNKNOWN),
    (
        "connection refused",
        [
            POST,
            f"{SHADED}client5.http.HttpHostConnectException: Connect to 127.0.0.1:1 refused",
        ],
        FAILED,
    ),
    (
        "connect time-out",
        [POST, f"{SHADED}client5.http.ConnectTimeoutException: Connect timed out"],
        FAILED,
    ),
    (
        "a read that hung up",
        [
            f"{ICEBERG}RESTException: Error occurred while processing GET request",
            f"{SHADED}core5.http.NoHttpResponseException: 127.0.0.1:33057 failed to respond",
        ],
        FAILED,
    ),
    ("changed files", [f"{ICEBERG}ValidationException: Missing required files"], REFUSED),
    ("created by another", [f"{ICEBERG}AlreadyExistsException: Table already exists"], REFUSED),
    (
        "SQLite busy",
        [
            SQL,
            "org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked",
        ],
        REFUSED,
    ),
    (
        "a file with a telling name",
        [f"{ICEBERG}Unknown: /w/[SQLITE_BUSY/x.PSQLException: ERROR: duplicate key"],
        UNKNOWN,
    ),
    ("SQLite locked", [SQL, "org.sqlite.SQLiteException: [SQLITE_LOCKED] A table"], REFUSED),
    ("SQLite readonly", [SQL, "org.sqlite.SQLiteException: [SQLITE_READONLY] Attempt"], FAILED),
    (
        "SQLite constraint",
        [SQL, "org.sqlite.SQLiteException: [SQLITE_CONSTRAINT_PRIMARYKEY] A PRIMARY KEY"],
        REFUSED,
    ),
    ("SQLite input or output", [SQL, "org.sqlite.SQLiteException: [SQLITE_IOERR] Some"], UNKNOWN),
    (
        "another swapped",
        [f"{ICEBERG}CommitFailedException: Cannot commit a.t: metadata location x has changed"],
        REFUSED,
    ),
    ("terminated", [SQL, f"{PSQL}FATAL: terminating connection due to administrator"], UNKNOWN),
    ("cancelled", [SQL, f"{PSQL}ERROR: canceling statement due to user request"], REFUSED),
    ("serialization", [SQL, f"{PSQL}ERROR: could not serialize access due to"], REFUSED),
    ("unique", [SQL, f"{PSQL}ERROR: duplicate key value violates unique constraint"], REFUSED),
    ("closed before", [SQL, f"{PSQL}This connection has been closed."], FAILED),
    ("PostgreSQL refused", [SQL, f"{PSQL}Connection to 127.0.0.1:1 refused. Check"], FAILED),
    (
        "PostgreSQL cut",
        [SQL, f"{PSQL}An I/O error occurred while sending to the backend.", "java.io.EOFException"],
        UNKNOWN,
    ),
    (
        "store, before the commit",
        ["software.amazon.awssdk.services.s3.model.NoSuchBucketException: The specified bucket"],
        FAILED,
    ),
    (
        "disk, before the commit",
        [
            f"{ICEBERG}RuntimeIOException: Failed to create file: file:/w/a/t/metadata/00002.json",
            "org.apache.hadoop.fs.FileAlreadyExistsException: Destination exists",
        ],
        FAILED,
    ),
    (
        "inside Spark's own",
        [
            "org.apache.spark.SparkException: Writing job aborted",
            f"{ICEBERG}CommitStateUnknownException: Service failed: 504",
            f"{ICEBERG}CommitFailedException: whatever",
        ],
        UNKNOWN,
    ),
    (
        "a task of Spark",
        ["org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0"],
        FAILED,
    ),
    ("the JVM died", ["Answer from Java side is empty"], UNKNOWN),
]


@pytest.mark.parametrize(
    ("kind", "error", "outcome"),
    [
        pytest.param(kind, error, outcome, id=f"{kind} {name}")
        for kind, name, error, outcome in PYTHON
    ],
)
def test_what_python_raises(kind, error, outcome):
    assert outcome_of(error, profile(kind)) is outcome


@pytest.mark.parametrize(
    ("causes", "outcome"),
    [pytest.param(causes, outcome, id=name) for name, causes, outcome in JAVA],
)
def test_what_java_raises(causes, outcome):
    assert outcome_of_java(causes) is outcome


@pytest.mark.parametrize(
    ("kind", "error", "raised", "code", "retryable"),
    [
        ("rest", answer(409), ConflictError, Code.CONFLICT, True),
        ("rest", answer(504), UnknownOutcomeError, Code.UNKNOWN_OUTCOME, True),
        ("rest", answer(403), CatalogError, Code.REFUSED, False),
        ("rest", answer(404), NotFoundError, Code.NOT_FOUND, False),
        ("rest", answer(400), CatalogError, Code.CATALOG, False),
        ("rest", answer(429), CatalogError, Code.CATALOG, True),
        ("sqlite", database("attempt to write a readonly database"), StorageError, None, False),
        ("postgres", OSError(NO_BUCKET), StorageError, Code.STORAGE, False),
        ("postgres", OSError(NETWORK), StorageError, Code.STORAGE, True),
        (
            "postgres",
            postgres(psycopg2.OperationalError, CLOSED),
            CatalogError,
            Code.UNREACHABLE,
            True,
        ),
    ],
)
def test_what_a_caller_sees(kind, error, raised, code, retryable):
    with (
        pytest.raises(raised) as seen,
        committing(profile(kind), "a.t", "appending snapshot 5"),
    ):
        raise error
    assert seen.value.__cause__ is error
    assert (seen.value.code, seen.value.retryable) == (code or seen.value.code, retryable)


def test_a_defect_of_ours_is_not_taken_for_an_answer():
    with (
        pytest.raises(AttributeError),
        committing(profile("rest"), "a.t", "appending snapshot 5"),
    ):
        raise AttributeError("no such thing")
