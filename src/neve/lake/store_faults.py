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
from neve.lake.local_faults import StoreAnswer, arrow_answer
from neve.lake.timeouts import is_time_over

Result = TypeVar("Result")

WRITING = "cannot write"
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.1
_WAIT_GROWTH = 3.0
_MOST_LETTERS = 300

_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired", "RequestTimeTooSkewed"})
_DENIED = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)
_DENIED_STATUSES = frozenset({401, 403})
# Of botocore, which nobody may have loaded.
_WITHOUT_LOGIN = frozenset({"NoCredentialsError", "PartialCredentialsError"})
# How obstore tells of a status. In an error that has no type of its own, nothing before it is free
# text: the address is one word, in which letters are encoded. In others a file's name may be.
_OBSTORE = re.compile(
    r"(?:Generic \S+ error|(?!Generic ).*): (?:Error performing [a-z ]+: )?"
    r"Error performing [A-Z]+ \S+ in [^<]*? - Server returned non-2xx status code: (\d{3})\b(.*)",
    re.DOTALL,
)
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
    reason, answer, judged = _reason(error), answer_of(error), error.__cause__
    if isinstance(judged, StorageError):
        # By `object_io.ObjectFileIO`, which raises what a file system does.
        return StorageError(
            f"{what}: {reason}", hint=judged.hint, code=judged.code, retryable=judged.retryable
        )
    if answer.code in _EXPIRED:
        return StorageError(
            f"{what}: {path}: the credentials have expired ({reason})",
            hint="renew them and run the command again: it goes on where it stopped",
            code=Code.REFUSED,
        )
    denied = (PermissionDeniedError, UnauthenticatedError, PermissionError)
    if (
        isinstance(error, denied)
        or answer.status in _DENIED_STATUSES
        or answer.code in _DENIED
        or type(error).__name__ in _WITHOUT_LOGIN
    ):
        return StorageError(
            f"{what}: {path}: access was refused ({reason})",
            hint="check the storage section of this catalog, and the permissions there",
            code=Code.REFUSED,
        )
    is_local = isinstance(error, OSError) and error.errno is not None
    was_answered = answer != StoreAnswer()
    return StorageError(
        f"{what}: {path}: {reason}",
        hint="check the storage section of this catalog, and that the store can be reached",
        retryable=answer.may_pass if was_answered else not is_local,
    )


def answer_of(error: Exception) -> StoreAnswer:
    """Return the status and the code of a store's answer, and none where it gave no answer.

    Never by what may be part of a path: a partition may be called `http_status=404`.
    """
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        # As botocore's ClientError has it.
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return StoreAnswer(status, str(response.get("Error", {}).get("Code", "")))
    if match := _OBSTORE.match(str(error)) if isinstance(error, BaseError) else None:
        body = _S3_ERROR.search(match[2])
        return StoreAnswer(int(match[1]), body[1] if body else "")
    answer = arrow_answer(error) if isinstance(error, OSError) else None
    return answer or StoreAnswer()


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
