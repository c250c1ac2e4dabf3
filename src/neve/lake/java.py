"""Find a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from neve.errors import SetupError

OLDEST_JAVA = 17
_HINT = "install Java 17 (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"


def find_java() -> Path:
    """Return the java command Spark will use, or say which package to install."""
    command = java_command()
    version = int(java_version(command).partition(".")[0])
    if version < OLDEST_JAVA:
        raise SetupError(
            f"Java {version} at {command} is too old: Spark needs {OLDEST_JAVA} or newer",
            hint=_HINT,
        )
    return command


def java_command() -> Path:
    """Return the java command that Spark takes, of whatever version. Raises SetupError."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not command or not Path(command).exists():
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise SetupError(f"Java is missing: there is no java command in {where}", hint=_HINT)
    return Path(command)


def java_version(java: Path) -> str:
    """Return the version of a java command, such as 17.0.15; 0 if it does not say."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"Java at {java} does not run", hint=_HINT) from error
    # Java 8 and older call themselves 1.8, newer ones 17.0.15.
    version = re.search(r'version "(?:1\.)?([0-9.]+)', answer.stderr + answer.stdout)
    return version[1].rstrip(".") if version else "0"
