"""Build the package for AWS Lambda: python -m tools.lambda_package [--out DIRECTORY].

It has what requirements/lambda.txt names, without the parts that are never imported, and Neve
itself. Built for the Python that runs this, or for another one with --python-version: then without
bytecode, so that a cold start takes longer.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from neve.config import cache_directory

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "requirements"
# AWS Lambda's own limit, unzipped.
MOST_BYTES = 250 * 1024 * 1024
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
# Python 3.12 and later run on Amazon Linux 2023, which has glibc 2.34.
PLATFORMS = {"x86_64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
# What is never imported: tests, sources and headers; Arrow's RPC, ORC and other clouds; the second
# and third copies of PyArrow's own libraries; catalogs and databases that Neve does not use.
UNUSED = (
    *("**/tests", "**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.pxi", "bin", "**/*.dist-info/RECORD"),
    *("pyarrow/include", "pyarrow/src", "pyarrow/libarrow_flight*", "pyarrow/*_flight*.so*"),
    *("pyarrow/*.so.*.*.*", "pyarrow/libarrow_python*.so", "pyarrow/_pyarrow_cpp_tests*"),
    *("pyarrow/_orc*", "pyarrow/_dataset_orc*", "pyarrow/_substrait*", "pyarrow/_gcsfs*"),
    *("pyarrow/_azurefs*", "pyarrow/_hdfs*"),
    *("numpy/f2py", "numpy/distutils", "numpy/typing", "numpy/_core/include", "numpy/_core/lib"),
    *("sqlalchemy/testing", "sqlalchemy/dialects/mssql", "sqlalchemy/dialects/mysql"),
    *("sqlalchemy/dialects/oracle", "zstandard/*cffi*", "boto3/examples", "hive_metastore"),
)
# Of all of AWS: S3, and what gives credentials.
BOTOCORE_CLIENTS = ("s3", "sts", "sso", "sso-oidc", "signin")
# Wheels with the debugging symbols of their builders; those of others must not be stripped again,
# since auditwheel has changed them.
UNSTRIPPED = (
    *("zstandard/*.so", "pyroaring*.so", "fastavro/*.so", "yaml/*.so", "sqlalchemy/**/*.so"),
    *("pyiceberg/avro/*.so", "mmh3*.so"),
)
_IMPORT_SECONDS = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.perf_counter()
from neve.direct import lambda_handler
print(time.perf_counter() - began)
"""


def build(directory: Path, python_version: str = RUNNING, architecture: str | None = None) -> None:
    """Make the package's directory, which must not exist yet."""
    here = ARCHITECTURES[platform.machine()]
    if (architecture or here) != here:
        # Neve's own library is compiled here.
        raise SystemExit(f"this machine is {here}: build for {architecture} on one of that kind")
    directory.mkdir(parents=True)
    _install(directory, python_version, PLATFORMS[here])
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = Path(scratch).glob("neve-*.whl")
        # Not installed: its tag names this Python, and its library is of none.
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
    _trim(directory)
    if python_version == RUNNING:
        # Lambda's directory cannot be written to: what is not compiled here is compiled each time.
        arguments = ["-q", "--invalidation-mode", "unchecked-hash", str(directory)]
        subprocess.run([sys.executable, "-m", "compileall", *arguments], check=True)


def _install(directory: Path, python_version: str, wanted_platform: str) -> None:
    (version,) = re.findall(r"^uv==([\d.]+)", (REQUIREMENTS / "uv.txt").read_text(), re.MULTILINE)
    uv = cache_directory() / f"uv-{version}" / "bin" / "uv"
    command = ["pip", "install", "--quiet", "--target", str(directory), "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--python-version", python_version]
    # A copy: links into uv's cache would have it stripped, too.
    command += ["--python-platform", wanted_platform, "--link-mode", "copy"]
    command += ["--python", sys.executable, "-r", str(REQUIREMENTS / "lambda.txt")]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    for options in (["--offline"], []):
        done = subprocess.run(
            [str(uv), *options, *command], env=environment, check=False, capture_output=True
        )
        if done.returncode == 0:
            return
        shutil.rmtree(directory)
        directory.mkdir()
    raise SystemExit(f"the requirements cannot be installed:\n{done.stderr.decode()}")


def _trim(directory: Path) -> None:
    data = directory / "botocore" / "data"
    clients = [path for path in data.iterdir() if path.is_dir()]
    unused = [path for path in clients if path.name not in BOTOCORE_CLIENTS]
    unused += [path for pattern in UNUSED for path in directory.glob(pattern)]
    for path in unused:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    libraries = [str(path) for pattern in UNSTRIPPED for path in directory.glob(pattern)]
    subprocess.run(["strip", "--strip-debug", *libraries], check=True)


def pack(directory: Path) -> Path:
    """Write the package's zip file beside its directory."""
    target = directory.with_suffix(".zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in _files(directory):
            # The same package is the same file: no times, and the rights that Lambda asks for.
            entry = zipfile.ZipInfo(str(path.relative_to(directory)))
            entry.external_attr = (0o755 if path.suffix == ".so" else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return target


def size_bytes(directory: Path) -> int:
    """Return how much the package takes on Lambda's disk."""
    return sum(path.stat().st_size for path in _files(directory))


def import_seconds(directory: Path) -> float:
    """Import the handler from the package and the standard library alone."""
    command = [sys.executable, "-I", "-S", "-c", _IMPORT_SECONDS, str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the package for AWS Lambda.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "lambda")
    parser.add_argument("--python-version", default=RUNNING, help="3.12 or 3.13 on Lambda")
    parser.add_argument("--architecture", choices=PLATFORMS)
    given = parser.parse_args()
    if given.out.exists():
        raise SystemExit(f"{given.out} exists: remove it, or name another with --out")
    build(given.out, given.python_version, given.architecture)
    size = size_bytes(given.out)
    archive = pack(given.out)
    print(f"{given.out}: {size / 2**20:.0f} MiB unzipped, at most 250 are allowed")
    print(f"{archive}: {archive.stat().st_size / 2**20:.0f} MiB")
    if given.python_version == RUNNING:
        print(
            f"import neve.direct.lambda_handler: {import_seconds(given.out):.2f} s on this machine"
        )
    if size > MOST_BYTES:
        raise SystemExit("the package is too large")


if __name__ == "__main__":
    main()
