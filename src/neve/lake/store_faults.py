"""What errors of stores mean, and which requests are worth repeating."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from neve.errors import Code, NeveError, NotFoundError, StorageError
from neve.lake.timeouts import is_time_over

Result = TypeVar("Result")

WRITING = "cannot write"
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.1
_WAIT_GROWTH = 3.0
_MOST_LETTERS = 300

_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestTimeTooSkewed")
_DENIED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|AllAccessDisabled|"
    r"\b40[13]\b|Forbidden|Unauthorized|NoCredentials|Unable to locate credentials"
)
# Answers of S3 with status 400 to a request that may succeed later: damaged or cut on its way.
_PASSING = re.compile(r"BadDigest|SHA256Mismatch|IncompleteBody|RequestTimeout")
# S3's answers to a request that will not succeed later. 404 is for a bucket, here.
_FINAL = re.compile(r"NoSuchBucket|InvalidBucketName|\b40[04]\b|NotImplemented|InvalidRequest")
_S3_ERROR = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)


def repeated(
    attempt: Callable[[], Result], what: str, path: str, attempts: int = ATTEMPTS
) -> Result:
    """Call until it succeeds; repeat what may pass, with longer and longer waits between.

    Raises:
        NotFoundError: there is no such file.
        StorageError: the store refused, or failed as often as it was asked, or until the caller's
            time was over (`timeouts.bounded_by`).
    """
    for number in range(1, attempts + 1):
        try:
            return attempt()
        except _store_errors() as error:
            explanation = explain(what, path, error)
            if not explanation.retryable or number == attempts or is_time_over():
                raise explanation from error
        wait_seconds = FIRST_WAIT_SECONDS * _WAIT_GROWTH ** (number - 1)
        time.sleep(wait_seconds * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries
    raise AssertionError("the last attempt returns or raises")


def _store_errors() -> tuple[type[Exception], ...]:
    """Return what stores raise; botocore raises nothing where nobody loaded it."""
    botocore = sys.modules.get("botocore.exceptions")
    of_botocore = (botocore.BotoCoreError, botocore.ClientError) if botocore else ()
    return (BaseError, OSError, *of_botocore)


@contextmanager
def explaining(what: str, path: str) -> Iterator[None]:
    """Give errors of a store their meaning; nothing is repeated. Raises as `repeated`."""
    try:
        yield
    except _store_errors() as error:
        raise explain(what, path, error) from error


def explain(what: str, path: str, error: Exception) -> NeveError:
    """Say what an error means for a file, and whether the same request may succeed later."""
    is_missing = isinstance(error, FileNotFoundError) or (
        isinstance(error, NotADirectoryError) and what != WRITING
    )
    if is_missing:
        return NotFoundError(f"{what}: {path} does not exist")
    reason = _reason(error)
    text = f"{type(error).__name__} {error}"
    if _EXPIRED.search(text):
        return StorageError(
            f"{what}: {path}: the credentials have expired ({reason})",
            hint="renew them and run the command again: it goes on where it stopped",
            code=Code.REFUSED,
        )
    denied = (PermissionDeniedError, UnauthenticatedError, PermissionError)
    if isinstance(error, denied) or _DENIED.search(text):
        return StorageError(
            f"{what}: {path}: access was refused ({reason})",
            hint="check the storage section of this catalog, and the permissions there",
            code=Code.REFUSED,
        )
    is_local = isinstance(error, OSError) and error.errno is not None
    return StorageError(
        f"{what}: {path}: {reason}",
        hint="check the storage section of this catalog, and that the store can be reached",
        retryable=not is_local and (not _FINAL.search(text) or _PASSING.search(text) is not None),
    )


def _reason(error: Exception) -> str:
    """Return the store's own words in one line, without the rest: answers may name access keys."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        # As botocore's ClientError has it.
        answer = response.get("Error", {})
        return f"{answer.get('Code', 'error')}: {answer.get('Message', '')}".strip(": ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if match := _S3_ERROR.search(str(error)):
        return ": ".join(part for part in match.groups() if part)
    # Behind its first line, obstore's message is a debug dump.
    return str(error).strip().partition("\n")[0][:_MOST_LETTERS]
