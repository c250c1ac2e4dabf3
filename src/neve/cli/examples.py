"""The examples under each `--help`. A test parses every one of them."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, tuple[str, ...]] = {
    "neve": ("neve demo", "neve init && neve run", 'neve sql "SELECT count(*) FROM otel.logs"'),
    "neve demo": ("neve demo", "neve demo --dir /tmp/neve-demo"),
    "neve init": ("neve init", "neve init --force"),
    "neve config": ("neve config show", "neve config check"),
    "neve config show": ("neve config show", "neve config show --json"),
    "neve config check": ("neve config check", "neve config check -c production.yaml"),
    "neve serve": ("neve serve", "neve serve -c receiver.yaml"),
    "neve run": ("neve run", "neve run -v"),
    "neve buffer": ("neve buffer status", "neve buffer dead-letters"),
    "neve buffer status": ("neve buffer status", "neve buffer status --json"),
    "neve buffer forget": ("neve buffer forget 0193f0a2c1d4",),
    "neve buffer dead-letters": (
        "neve buffer dead-letters",
        "neve buffer dead-letters replay --all",
    ),
    "neve buffer dead-letters show": ("neve buffer dead-letters show logs-1.json",),
    "neve buffer dead-letters replay": (
        "neve buffer dead-letters replay logs-1.json",
        "neve buffer dead-letters replay --all",
    ),
    "neve buffer dead-letters purge": (
        "neve buffer dead-letters purge --older-than 30d",
        "neve buffer dead-letters purge logs-1.json",
    ),
    "neve consolidate": (
        "neve consolidate --once",
        "neve consolidate --replay otel.logs --from 2026-01-31T00:00:00",
    ),
    "neve staged": ("neve staged list", "neve staged publish otel.logs 3996d8836e4948ba"),
    "neve staged list": ("neve staged list", "neve staged list otel.logs --json"),
    "neve staged show": ("neve staged show otel.logs 3996d8836e4948ba --limit 5",),
    "neve staged publish": (
        "neve staged publish otel.logs 3996d8836e4948ba",
        "neve staged publish otel.logs --all",
    ),
    "neve staged discard": (
        "neve staged discard otel.logs 3996d8836e4948ba",
        "neve staged discard --older-than 7d --yes",
    ),
    "neve merge": (
        "neve merge --once",
        "neve merge shop.orders --rebuild --dry-run",
        "neve merge shop.orders --rebuild --accept-loss",
    ),
    "neve index": ("neve index status shop.orders", "neve index verify shop.orders"),
    "neve index build": ("neve index build shop.orders",),
    "neve index status": ("neve index status shop.orders",),
    "neve index compact": ("neve index compact shop.orders",),
    "neve index verify": ("neve index verify shop.orders",),
    "neve follow": ("neve follow list", "neve follow drop shop.orders hours"),
    "neve follow list": ("neve follow list", "neve follow list shop.orders --json"),
    "neve follow drop": ("neve follow drop shop.orders hours",),
    "neve tables": ("neve tables", "neve tables otel --json"),
    "neve describe": ("neve describe otel.logs", "neve describe otel.logs --json"),
    "neve health": ("neve health", "neve health otel.traces --json"),
    "neve maintain": (
        "neve maintain --dry-run",
        "neve maintain 'otel.*' --max-bytes 10GiB --max-minutes 30",
    ),
    "neve sql": (
        'neve sql "SELECT service_name, count(*) FROM otel.logs GROUP BY ALL"',
        'neve sql "SELECT * FROM otel.traces LIMIT 5" --format json',
    ),
    "neve changes": (
        "neve changes shop.orders --since 2026-11-01",
        "neve changes shop.orders --since v1 --until v2 --mode net --keys id",
        "neve changes otel.logs --since 3051729675574597004 -o new.parquet",
    ),
    "neve shell": ("neve shell", "neve shell -c production.yaml"),
    "neve move": (
        "neve move shop.orders --to archive --dry-run",
        "neve move 'shop.o*' otel --to archive",
        "neve move status",
        "neve move verify shop.orders --to archive",
    ),
    "neve rewrite": (
        "neve rewrite /backup/t/metadata/v42.metadata.json --from s3://lake/t --to /backup/t",
    ),
    "neve recover": (
        "neve recover --dry-run",
        "neve recover",
        "neve recover --table otel.logs --dry-run",
        "neve recover --table otel.logs --roll-back",
        "neve recover --forget 5b0c2f0e-7a43-4f0e-9d1c-0e9b6f2f7f11",
    ),
    "neve debug": ("neve debug failpoints",),
    "neve debug failpoints": ("neve debug failpoints --json",),
}


def add_examples(command: Any, path: str = "neve") -> None:
    """Give a command, and all below it, its examples as the last lines of its help.

    Args:
        command: what Typer makes of an app; its class is in a private module.
    """
    examples = EXAMPLES.get(path, ())
    if examples:
        # The first character keeps these lines from being wrapped into one.
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
    for name, below in getattr(command, "commands", {}).items():
        add_examples(below, f"{path} {name}")
