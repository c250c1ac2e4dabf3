"""Install the real servers the tests run against, once, into the cache outside the work tree.

`python -m tests.support.install` does nothing, and needs no network, when all of it is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from neve.config import cache_directory
from neve.errors import NeveError, SetupError
from neve.lake.class_training import main as make_class_archive
from neve.lake.java import find_java

_JAVA = Path(__file__).parent / "java"
_ICEBERG_REST = (_JAVA / "iceberg-rest.xml", _JAVA / "IcebergRest.java")
_DEBEZIUM = (_JAVA / "debezium.xml", _JAVA / "Changes.java")
_COLLECTOR = Path(__file__).parent / "collector" / "builder.yaml"

POSTGRES_BIN = Path("/usr/lib/postgresql/15/bin")  # Debian keeps the server's commands off PATH
VERSITYGW = "v1.8.0"
OPENTELEMETRY = "v0.161.0"  # the Collector and telemetrygen; a later builder wants a later Go
MAVEN_DEPENDENCY_PLUGIN = "3.6.1"


@dataclass(frozen=True)
class Tool:
    """A command that must be on this machine, and the Debian package that brings it."""

    command: str
    package: str | None
    hint: str
    directory: Path | None = None

    def find(self) -> str | None:
        places = [str(self.directory or Path(sys.prefix, "bin")), os.environ.get("PATH", "")]
        return shutil.which(self.command, path=os.pathsep.join(places))

    def path(self) -> str:
        if found := self.find():
            return found
        raise SetupError(f"the tests need {self.command}, which is missing", hint=self.hint)


def _debian(command: str, package: str, directory: Path | None = None) -> Tool:
    return Tool(command, package, f"install it: apt-get install {package}", directory)


CURL = _debian("curl", "curl")
MAVEN = _debian("mvn", "maven")
POSTGRES = _debian("postgres", "postgresql-15", POSTGRES_BIN)
# Debian 12's own Go is too old for the servers built with it.
GO = Tool("go", None, "install Go 1.25 or newer and put it on PATH")


@dataclass(frozen=True)
class Part:
    """Something built once and kept; a new version gets a directory of its own."""

    name: str
    version: str
    needs: tuple[Tool, ...]
    build: Callable[[Path], None]

    @property
    def directory(self) -> Path:
        return cache_directory() / "servers" / f"{self.name}-{self.version}"


def _run(command: Iterable[str | Path], *, cwd: Path | None = None, **environment: str) -> None:
    words = [str(word) for word in command]
    answer = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        said = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
        raise SetupError(f"{Path(words[0]).name} failed: {' | '.join(said[-3:])}")


def _go_install(package: str) -> Callable[[Path], None]:
    def build(directory: Path) -> None:
        _run(
            [GO.path(), "install", "-ldflags=-s -w", package],
            CGO_ENABLED="0",
            GOBIN=str(directory),
        )

    return build


def _build_collector(directory: Path) -> None:
    builder = f"go.opentelemetry.io/collector/cmd/builder@{OPENTELEMETRY}"
    _run([GO.path(), "run", builder, "--config", _COLLECTOR], cwd=directory, CGO_ENABLED="0")
    built = directory / "built"
    (built / "otelcol").rename(directory / "otelcol")
    shutil.rmtree(built)


# Maven 3 does not expect a second one to fill its local repository at the same time.
_MAVEN_REPOSITORY = threading.Lock()


def _java_launcher(pom: Path, launcher: Path) -> Callable[[Path], None]:
    """Build `lib`, what the pom names, and `classes`, our launcher on top of it."""

    def build(directory: Path) -> None:
        libraries, classes = directory / "lib", directory / "classes"
        goal = f"org.apache.maven.plugins:maven-dependency-plugin:{MAVEN_DEPENDENCY_PLUGIN}"
        options = ("-DincludeScope=runtime", f"-DoutputDirectory={libraries}")
        with _MAVEN_REPOSITORY:
            _run([MAVEN.path(), "-B", "-q", "-f", pom, f"{goal}:copy-dependencies", *options])
        jars = os.pathsep.join(str(jar) for jar in sorted(libraries.glob("*.jar")))
        compiler = "org.eclipse.jdt.internal.compiler.batch.Main"
        _run([find_java(), "-cp", jars, compiler, "-17", "-cp", jars, "-d", classes, launcher])

    return build


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _java_part(name: str, files: tuple[Path, Path]) -> Part:
    return Part(name, _digest(*files), (MAVEN,), _java_launcher(*files))


def classpath(part: Part) -> str:
    return f"{part.directory / 'classes'}:{part.directory / 'lib'}/*"


ICEBERG_REST = _java_part("iceberg-rest", _ICEBERG_REST)
DEBEZIUM = _java_part("debezium", _DEBEZIUM)
S3 = Part(
    "versitygw",
    VERSITYGW,
    (GO,),
    _go_install(f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}"),
)
TELEMETRYGEN = Part(
    "telemetrygen",
    OPENTELEMETRY,
    (GO,),
    _go_install(
        "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/"
        f"telemetrygen@{OPENTELEMETRY}"
    ),
)
COLLECTOR = Part("otelcol", _digest(_COLLECTOR), (GO,), _build_collector)

PARTS = (ICEBERG_REST, DEBEZIUM, S3, TELEMETRYGEN, COLLECTOR)
TOOLS = (POSTGRES, CURL)


def install(
    report: Callable[[str], None],
    parts: Iterable[Part] = PARTS,
    tools: Iterable[Tool] = TOOLS,
) -> None:
    """Install what is missing: packages first, one after the other, then parts side by side.

    Atomic for each part: the cache never holds half of one. Safe to run twice at once.
    """
    missing = [part for part in parts if not part.directory.exists()]
    wanted = dict.fromkeys([*tools, *(tool for part in missing for tool in part.needs)])
    _install_packages([tool for tool in wanted if not tool.find()], report)
    if not missing:
        return
    with ThreadPoolExecutor(len(missing)) as pool:
        for done in [pool.submit(_install_part, part, report) for part in missing]:
            done.result()


def _install_packages(tools: list[Tool], report: Callable[[str], None]) -> None:
    packages = [tool.package for tool in tools if tool.package]
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        report(f"installing {' '.join(packages)} with apt-get")
        _run(["apt-get", "-q", "update"])
        _run(
            ["apt-get", "-q", "-y", "--no-install-recommends", "install", *packages],
            DEBIAN_FRONTEND="noninteractive",
        )
    for tool in tools:
        tool.path()


def _install_part(part: Part, report: Callable[[str], None]) -> None:
    report(f"installing {part.name} {part.version} (once)")
    part.directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=part.directory.parent, prefix=".install-") as scratch:
        made = Path(scratch, part.name)
        made.mkdir()
        part.build(made)
        try:
            made.rename(part.directory)
        except OSError:
            # Another run was faster; a directory that is not empty is never replaced.
            if not part.directory.exists():
                raise


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command's own output


def main() -> int:
    try:
        install(_print)
    except NeveError as error:
        sys.stderr.write(f"{error.message}{f' ({error.hint})' if error.hint else ''}\n")
        return 1
    # About thirty processes of the tests start Spark. A Java that cannot do this fails one test.
    make_class_archive()
    return 0


if __name__ == "__main__":
    sys.exit(main())
