"""The real servers: PostgreSQL, S3, an Iceberg REST catalog, a Spark cluster. All on loopback.

Each is a context manager: ready to be used on entry, gone on exit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from neve.lake import class_archive
from neve.lake.jars import ensure_jars
from neve.lake.java import find_java
from tests.support.install import ICEBERG_REST, POSTGRES, S3, classpath
from tests.support.process import Process, accepts_connections, free_port

REGION = "eu-central-1"
# For programs that end before the better compiler and the parallel collector pay off. Most of their
# code runs a few hundred times, so it is compiled sooner. Without the better compiler Java takes
# little memory for heap, classes and code, and spends a tenth of its time on making room there.
SHORT_LIVED_JAVA = {
    "JDK_JAVA_OPTIONS": " ".join(
        (
            "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.3",
            "-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m",
            "-XX:+UseSerialGC -XX:InitialRAMPercentage=50 -XX:NewRatio=1",
            # Released jars need no second look.
            "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
            # Hadoop starts `chmod` for each file that it writes to this disk.
            "-Djdk.lang.Process.launchMechanism=VFORK",
        )
    )
}


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    bucket: str
    access_key: str = "lab"
    secret_key: str = "lab/secret+12"  # with what must be escaped in signatures and addresses


@dataclass(frozen=True)
class Database:
    port: int
    user: str
    password: str
    process: Process

    def uri(self, password: str | None = None) -> str:
        secret = quote(password or self.password, safe="")
        return f"postgresql://{self.user}:{secret}@127.0.0.1:{self.port}/postgres"


@dataclass(frozen=True)
class RestCatalog:
    port: int
    process: Process

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_s3(directory: Path, bucket: str = "lake", **keys: str) -> Iterator[S3Server]:
    """Serve a directory as an S3 store with one bucket."""
    port, root = free_port(), directory / "s3"
    server = S3Server(f"http://127.0.0.1:{port}", bucket, **keys)
    (root / server.bucket).mkdir(parents=True)
    process = Process(
        "versitygw",
        [
            *(S3.directory / "versitygw", "--port", f"127.0.0.1:{port}"),
            *("--region", REGION, "posix", root),
        ],
        directory / "versitygw.log",
        environment={"ROOT_ACCESS_KEY": server.access_key, "ROOT_SECRET_KEY": server.secret_key},
    )
    process.wait_until(lambda: accepts_connections(port))
    try:
        yield server
    finally:
        process.stop()


@contextmanager
def running_postgres(directory: Path) -> Iterator[Database]:
    """Run a PostgreSQL of our own that asks for passwords."""
    # It refuses to run as root, and its own user cannot enter pytest's private directories.
    user = "postgres" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="neve-postgres-"))
    port, name, password = free_port(), "neve", "p@ss/word"
    (home / "password").write_text(password)
    if user:
        for path in (home, home / "password"):
            shutil.chown(path, user, user)
    bin_directory, data = Path(POSTGRES.path()).resolve().parent, home / "data"
    subprocess.run(
        [
            *(bin_directory / "initdb", "-D", data, "-E", "UTF8", "--no-locale", "-N"),
            *("-U", name, "-A", "scram-sha-256", f"--pwfile={home / 'password'}"),
        ],
        user=user,
        group=user,
        extra_groups=[] if user else None,
        cwd="/",
        check=True,
        capture_output=True,
    )
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        "fsync": "off",
        "wal_level": "logical",
    }
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    log = directory / "postgres.log"
    process = Process(
        "postgres", [bin_directory / "postgres", "-D", data, *options], log, user=user
    )
    # It accepts connections before it can answer them; this line comes after.
    process.wait_until(lambda: "ready to accept connections" in log.read_text())
    try:
        yield Database(port, name, password, process)
    finally:
        process.stop(signal.SIGINT)  # the default waits until every client is gone
        shutil.rmtree(home)


@contextmanager
def running_rest_catalog(directory: Path, storage: S3Server) -> Iterator[RestCatalog]:
    """Run Iceberg's own REST server, its state in SQLite, its tables on S3."""
    port = free_port()
    properties = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{directory / 'rest.db'}?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": f"s3://{storage.bucket}/rest",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": storage.endpoint,
        "s3.path-style-access": "true",
    }
    process = Process(
        "iceberg-rest",
        [find_java(), "-Xmx256m", "-cp", classpath(ICEBERG_REST)]
        + ["org.apache.iceberg.rest.IcebergRest", str(port)]
        + [f"{key}={value}" for key, value in properties.items()],
        directory / "rest.log",
        environment={
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": storage.access_key,
            "AWS_SECRET_ACCESS_KEY": storage.secret_key,
            **SHORT_LIVED_JAVA,
        },
    )
    process.wait_until(lambda: accepts_connections(port))
    try:
        yield RestCatalog(port, process)
    finally:
        process.stop()


@contextmanager
def running_spark_cluster(
    directory: Path,
    workers: int = 2,
    private: Path | None = None,
    *,
    are_pinned: bool = False,
) -> Iterator[str]:
    """Run a standalone master and its workers, each a process; yield the master's address.

    Args:
        private: a directory in whose place the last worker has a file system of its own.
        are_pinned: each worker may use one core of the machine, and its executors no other. A task
            is at work in Java and in Python at the same time, so that it would take two.
    """
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = _spark_daemon(directory / "master.log", "Master", "--port", str(port))
        stack.callback(master.stop)
        master.wait_until(lambda: accepts_connections(port))
        started = []
        for number in range(1, workers + 1):
            log, work = directory / f"worker-{number}.log", directory / f"worker-{number}"
            share = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            apart = private if number == workers else None
            core = sorted(os.sched_getaffinity(0))[number - 1] if are_pinned else None
            started.append(_spark_daemon(log, "Worker", *share, address, private=apart, core=core))
            stack.callback(started[-1].stop)
        for worker in started:
            worker.wait_until(lambda log=worker.log: "Successfully registered" in log.read_text())
        yield address


def _spark_daemon(
    log: Path, kind: str, *arguments: str, private: Path | None = None, core: int | None = None
) -> Process:
    home = Path(find_spec("pyspark").origin).parent
    main_class = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    mounting = 'mount -t tmpfs neve "$0" && exec "$@"'
    java = find_java()
    archive = class_archive.use_options(java, ensure_jars(java, print))
    return Process(
        f"Spark {kind.lower()}",
        [
            *(("unshare", "--mount", "sh", "-c", mounting, private) if private else ()),
            *(("taskset", "--cpu-list", str(core)) if core is not None else ()),
            *(home / "bin" / "spark-class", main_class, "--host", "127.0.0.1"),
            *("--webui-port", "0", *arguments),
        ],
        log,
        environment={
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            # Executors inherit it.
            "JDK_JAVA_OPTIONS": " ".join([SHORT_LIVED_JAVA["JDK_JAVA_OPTIONS"], *archive]),
        },
    )
