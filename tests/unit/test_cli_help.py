"""Help: what a bare command prints, examples that are true, and where a usage error points to."""

import shlex

import pytest
import typer

from neve.cli.app import app, hoist_global_options, run
from neve.cli.examples import EXAMPLES, add_examples


def all_commands(command, path="neve"):
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, f"{path} {name}")


COMMANDS = dict(all_commands(typer.main.get_command(app)))
# But for neve buffer dead-letters, which lists them.
GROUPS = [path for path, command in COMMANDS.items() if getattr(command, "no_args_is_help", False)]


def parse(command, name, arguments, parent=None):
    """Parse a command line as far as its last command, and call none."""
    context = command.make_context(name, list(arguments), parent=parent)
    if hasattr(command, "commands"):
        below = [*context._protected_args, *context.args]
        if below or not command.invoke_without_command:
            name, command, rest = command.resolve_command(context, below)
            parse(command, name, rest, context)


@pytest.mark.parametrize("path", GROUPS)
def test_a_bare_group_prints_its_help(capsys, path):
    assert run(path.split()[1:]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"Usage: {path} ")
    assert f"Examples:\n    {EXAMPLES[path][0]}\n" in captured.out
    assert captured.err == ""


def test_every_command_has_examples_that_can_be_typed():
    assert EXAMPLES.keys() == COMMANDS.keys()
    root = typer.main.get_command(app)
    for path, examples in EXAMPLES.items():
        for example in examples:
            assert example.startswith(path)
            for line in example.split(" && "):
                program, *arguments = shlex.split(line)
                assert program == "neve"
                parse(root, "neve", hoist_global_options(arguments))
    with pytest.raises(Exception, match="No such option: --absent"):
        parse(root, "neve", ["staged", "list", "--absent"])


def test_examples_are_the_last_lines_of_the_help():
    add_examples(COMMANDS["neve"])
    for path, command in COMMANDS.items():
        lines = command.get_help(typer.Context(command, info_name=path)).splitlines()
        assert lines[-len(EXAMPLES[path]) :] == [f"    {example}" for example in EXAMPLES[path]]


@pytest.mark.parametrize(
    ("arguments", "see"),
    [
        (["nonsense"], "neve"),
        (["staged", "nonsense"], "neve staged"),
        (["staged", "show"], "neve staged show"),
        (["describe", "--bogus"], "neve describe"),
        (["buffer", "dead-letters", "show"], "neve buffer dead-letters show"),
    ],
)
def test_a_usage_error_names_the_help_of_its_command(capsys, arguments, see):
    assert run(arguments) == 2
    assert capsys.readouterr().err.endswith(f"(see: {see} --help)\n")
