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
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found or not Path(found).exists():
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise SetupError(f"Java is missing: there is no java command in {where}", hint=_HINT)
    version = _major_version(found)
    if version < OLDEST_JAVA:
        raise SetupError(
            f"Java {version} at {found} is too old: Spark needs {OLDEST_JAVA} or newer", hint=_HINT
        )
    return Path(found)


def _major_version(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"Java at {java} does not run", hint=_HINT) from error
    # Java 8 and older call themselves 1.8, newer ones 17.0.15.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else 0
