"""`neve buffer`."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.cli.ages import parse_age
from neve.cli.reading import name_lake
from neve.errors import EXIT_INCOMPLETE, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message

    from neve.buffer.reader import RetainedSegment, StreamStatus
    from neve.buffer.store import BufferStore

STATUS_COLUMNS = (
    "stream",
    "segments",
    "bytes",
    "open_bytes",
    "oldest_received_at",
    "oldest_age_seconds",
    "retired_through",
    "state",
    "missing",
    "retained_segments",
    "retained_bytes",
    "oldest_consumed_at",
    "buffer_id",
)
FORGOTTEN_COLUMNS = ("table", "marks", "staged_batches")
LETTER_COLUMNS = ("stream", "segment", "position", "path", "reason", "file")

app = typer.Typer(help="What is buffered, and what was set aside.", no_args_is_help=True)
dead_letters_app = typer.Typer(help="What was acknowledged and could not become rows.")
app.add_typer(dead_letters_app, name="dead-letters")

_FILE_HELP = "A dead letter, as the column file of neve buffer dead-letters names it."
_File = Annotated[str, typer.Argument(metavar="FILE", help=_FILE_HELP)]
_Files = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
    typer.Argument(metavar="[FILE]...", help=_FILE_HELP),
]


@app.callback()
def group() -> None:
    """What is buffered, and what was set aside."""


@app.command()
def status(context: typer.Context) -> None:
    """Show the buffer's streams: segments and bytes that wait, and the oldest of them."""
    from neve.buffer.identity import read_identity
    from neve.buffer.reader import BufferReader

    store = _open_store(context)
    buffer_id = read_identity(store)
    reader = BufferReader(store, dedup_seconds=0)
    streams = reader.streams()
    retained: dict[str, list[RetainedSegment]] = {}
    for kept in reader.retained():
        retained.setdefault(kept.segment.stream, []).append(kept)
    rows = [
        {**row, **_retained(retained.get(row["stream"], [])), "buffer_id": buffer_id}
        for row in status_rows(streams)
    ]
    context.obj.output.rows(STATUS_COLUMNS, rows)
    if not rows:
        loaded = context.obj.load()
        location = loaded.settings.buffer.location
        context.obj.output.say(
            f"The buffer {location} is empty ({name_lake(loaded)}). "
            "Start a receiver with: neve serve"
        )
        if buffer_id is not None:
            context.obj.output.say(f"Its id is {buffer_id}.")


def _retained(retained: Sequence[RetainedSegment]) -> dict[str, Any]:
    oldest = min((kept.consumed_unix_nano for kept in retained), default=None)
    return {
        "retained_segments": len(retained),
        "retained_bytes": sum(kept.segment.bytes for kept in retained),
        "oldest_consumed_at": _time(oldest) if oldest else None,
    }


def status_rows(streams: Iterable[StreamStatus]) -> list[dict[str, Any]]:
    """Return a row of `STATUS_COLUMNS` for each stream."""
    now = time.time_ns()
    rows = []
    for stream in streams:
        oldest = stream.oldest_received_unix_nano
        rows.append(
            {
                "stream": stream.stream,
                "segments": stream.segments,
                "bytes": stream.bytes,
                "open_bytes": stream.open_bytes,
                "oldest_received_at": _time(oldest) if oldest else None,
                "oldest_age_seconds": round((now - oldest) / 1e9, 1) if oldest else None,
                "retired_through": stream.retired_through,
                "state": "closed" if stream.closed else "open",
                "missing": stream.missing,
            }
        )
    return rows


@app.command()
def forget(
    context: typer.Context,
    buffer_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a buffer that never comes back.")
    ],
    discard_staged: Annotated[
        bool,
        typer.Option("--discard-staged", help="Also give up its batches that nobody published."),
    ] = False,
) -> None:
    """Remove from the tables what they remember of a buffer that is gone for good.

    Never forget a buffer that is still in use: its rows would be stored a second time.
    """
    from neve.buffer.identity import read_identity
    from neve.publish.forget_buffer import forget_buffer

    store = _open_store(context)
    with context.obj.open() as lake:
        removed = forget_buffer(
            lake, store, read_identity(store), buffer_id, discard_staged=discard_staged
        )
    context.obj.output.rows(
        FORGOTTEN_COLUMNS,
        [
            {
                "table": memory.table,
                "marks": len(memory.marks),
                "staged_batches": len(memory.staged_batches),
            }
            for memory in removed
        ],
    )


@dead_letters_app.callback(invoke_without_command=True)
def dead_letters(context: typer.Context) -> None:
    """List what was acknowledged and could not become rows, with the reasons."""
    if context.invoked_subcommand is not None:
        return
    from neve.buffer.dead_letters import read_dead_letters

    letters = read_dead_letters(_open_store(context))
    rows = [{**letter, **reason} for letter in letters for reason in letter["reasons"]]
    context.obj.output.rows(LETTER_COLUMNS, rows)


@dead_letters_app.command("show")
def show(context: typer.Context, file: _File) -> None:
    """Show one: the reasons, and the records that were set aside."""
    from neve.buffer.dead_letters import check_file_name, read_dead_letter

    check_file_name(file)
    document = read_dead_letter(_open_store(context), file)
    received = document["received_unix_nano"]
    context.obj.output.record(
        {
            "file": file,
            "stream": document["stream"],
            "segment": document["segment"],
            "position": document["position"],
            "received_at": _time(received) if received else None,
            "sender_name": document.get("sender_name"),
            "reasons": _with_records(document),
        }
    )


def _with_records(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the reasons, each with the record it is about; None for what cannot be read."""
    from neve.buffer.dead_letters import stored_request
    from neve.buffer.replay_requests import parse_payload
    from neve.errors import CorruptionError

    try:
        dead = stored_request(document)
        request = parse_payload(dead.signal, dead.payload) if dead else None
    except CorruptionError:
        request = None
    return [
        {**reason, "record": _record(request, reason["path"])} for reason in document["reasons"]
    ]


def _record(request: Message | None, path: str) -> dict[str, Any] | None:
    from neve.buffer.record_paths import record_at
    from neve.errors import CorruptionError
    from neve.otlp.json_mapping import to_json

    if request is None:
        return None
    try:
        record: dict[str, Any] = to_json(record_at(request, path) if path else request)
    except CorruptionError:
        return None
    return record


@dead_letters_app.command("replay")
def replay(
    context: typer.Context,
    files: _Files = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay all of them.")] = False,
) -> None:
    """Store again what was set aside, exactly once, such as after an upgrade.

    Only the records that were set aside are stored again; the next consolidation makes rows of
    them. What still cannot become a row is set aside again. Ends with 3 if some could not be
    replayed.
    """
    from neve.buffer.replay import replay as replay_letters

    chosen = _chosen(files, everything=everything)
    done = replay_letters(_open_store(context), chosen)
    context.obj.output.record(
        {
            "requests": done.requests,
            "records": done.records,
            "streams": list(done.streams),
            "finished": list(done.finished),
            "skipped": [{"file": file, "reason": reason} for file, reason in done.skipped],
        }
    )
    if done.skipped:
        raise typer.Exit(EXIT_INCOMPLETE)


@dead_letters_app.command("purge")
def purge(
    context: typer.Context,
    files: _Files = None,
    older_than: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--older-than", metavar="T", help="Set aside longer ago than 30d, 12h, 5m."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all of them.")] = False,
) -> None:
    """Remove dead letters for good."""
    from neve.buffer.dead_letters import list_dead_letters, remove_dead_letters

    if older_than is not None and (files or everything):
        raise UsageError("name files, or say --all, or --older-than")
    age_seconds = parse_age("--older-than", older_than) if older_than is not None else 0.0
    chosen = None if older_than is not None else _chosen(files, everything=everything)
    before_unix_nano = time.time_ns() - int(age_seconds * 1e9)
    store = _open_store(context)
    removed = [
        file
        for file in list_dead_letters(store)
        if file.modified_unix_nano <= before_unix_nano and (chosen is None or file.path in chosen)
    ]
    remove_dead_letters(store, [file.path for file in removed])
    context.obj.output.record(
        {"removed": len(removed), "bytes": sum(file.size for file in removed)}
    )


def _chosen(files: list[str] | None, *, everything: bool) -> set[str] | None:
    """Return the files that were named; None for all of them."""
    from neve.buffer.dead_letters import check_file_name

    if bool(files) == everything:
        raise UsageError("name files, or say --all", hint="see: neve buffer dead-letters")
    for file in files or ():
        check_file_name(file)
    return set(files) if files else None


def _open_store(context: typer.Context) -> BufferStore:
    from neve.buffer.buffer import open_store
    from neve.buffer.spec import buffer_spec

    return open_store(buffer_spec(context.obj.load().settings))


def _time(unix_nano: int) -> datetime:
    return datetime.fromtimestamp(unix_nano / 1e9, timezone.utc)
