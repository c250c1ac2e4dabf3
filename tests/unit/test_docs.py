"""The documentation and the program say the same."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import ProcessCollector

from neve.cli.app import app
from neve.config import Settings
from tools.reference import PAGES as GENERATED
from tools.reference import expected_page

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_generated_parts_say_what_the_program_has(page):
    assert page.read_text() == expected_page(page), "run: make docs"


def commands(group=app):
    for command in group.registered_commands:
        yield command.name or command.callback.__name__.replace("_", "-")
    for below in group.registered_groups:
        for name in commands(below.typer_instance):
            yield f"{below.name} {name}"


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_is_documented(command):
    assert f"neve {command}" in (ROOT / "docs" / "commands.md").read_text()


def test_every_method_of_the_python_api_is_documented():
    from neve.api import OpenLake
    from neve.upkeep.maintained_lake import MaintainedLake
    from neve.versions.versioned_lake import VersionedLake

    members = {**vars(OpenLake), **vars(VersionedLake), **vars(MaintainedLake)}
    methods = {name for name in members if not name.startswith("_")}
    page = (ROOT / "docs" / "python.md").read_text()
    assert {name for name in methods if f"`lake.{name}(" not in page} == set()


def test_every_yaml_example_is_a_valid_configuration(monkeypatch, tmp_path):
    from neve.config import load

    tokens = ("OTLP_TOKEN", "SHOP_TOKEN", "WAREHOUSE_TOKEN", "OTHER_TOKEN")
    secrets = ("PGPASSWORD", "S3_SECRET", "CLIENT_SECRET", "SENTRY_DSN")
    for name in ("S3_KEY", "CLIENT_ID", *secrets, *tokens):
        monkeypatch.setenv(name, f"a-secret-called-{name}")
    examples = [
        block
        for page in PAGES
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)
    ]
    assert examples
    for number, block in enumerate(examples):
        if set(yaml.safe_load(block)) & set(Settings.model_fields):
            path = tmp_path / f"{number}.yaml"
            path.write_text(block)
            assert load(path).settings


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "decisions").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_both_tables_of_contents():
    pages = {page.name for page in PAGES if page.name != "README.md"}
    below = set(re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "README.md").read_text()))
    assert below == pages | {"decisions/"}
    rows = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \|", (ROOT / "README.md").read_text(), re.M)
    assert set(rows) == {f"docs/{page}" for page in below} | {"CONTRIBUTING.md", "CHANGELOG.md"}


def test_every_figure_of_the_readme_was_measured():
    (table,) = re.findall(r"\| capability .*?\n\n", (ROOT / "README.md").read_text(), re.S)
    figures = re.findall(r"\d[\d.,]*\d|\d", "".join(re.findall(r"\| ([^|]+) \|$", table, re.M)))
    assert len(figures) >= 7
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [
        figure for figure in figures if figure not in re.findall(r"\d[\d.,]*\d|\d", measured)
    ] == []


def test_make_bench_runs_the_benchmarks_that_the_page_lists():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    listed = set(re.findall(r"^\.venv/bin/python -m benchmarks\.(\w+)", page, re.M))
    (run,) = re.findall(r"for one in (.*?);", (ROOT / "Makefile").read_text())
    assert listed == set(run.split())
    assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in listed)


def test_contributing_lists_the_rooms_that_there_are():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^  (\w+/|\w+\.py) ", page.split("src/neve/\n")[1].split("```")[0], re.M)
    source = ROOT / "src" / "neve"
    rooms = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py") if not path.name.startswith("__")}
    assert sorted(listed) == sorted(rooms | modules)


def test_changelog_has_the_version():
    import neve

    assert f"## {neve.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_metric_is_documented_and_none_besides():
    from neve.config import Settings
    from neve.observe.maintenance import MaintenanceMetrics
    from neve.observe.merging import MergeMetrics
    from neve.observe.metrics import (
        ConsolidationMetrics,
        Registry,
        common_labels,
        supervision,
    )
    from neve.observe.receiving import receiving
    from neve.observe.upkeep import UpkeepMetrics
    from neve.receive.request_handler import RequestHandler
    from neve.receive.spec import ReceiveSpec
    from neve.service.receiving import receiver_numbers
    from tests.support.sinks import ListSink

    registry = Registry(common_labels(Settings()))
    ConsolidationMetrics(registry)
    MergeMetrics(registry)
    UpkeepMetrics(registry)
    MaintenanceMetrics(registry)
    ProcessCollector(registry=registry)
    registry.register(supervision(bool, int))
    handler = RequestHandler(ReceiveSpec(), ListSink())
    registry.register(receiving(lambda: receiver_numbers(handler)))
    named = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in registry.collect()
    }
    page = (ROOT / "docs" / "running.md").read_text()
    assert set(re.findall(r"^\| `((?:neve|merger|process)_\w+)`", page, re.M)) == named
