"""``pillion sidecar --plugin``."""

import argparse
from pathlib import Path

import pytest

from pillion_cli.commands.sidecar import plugin, plugins
from pillion_cli.exits import CommandError
from pillion_sidecar.settings import PluginEndpoint


@pytest.mark.parametrize(
    ("text", "name", "endpoint"),
    [
        ("a=/opt/a", "a", PluginEndpoint(command=("/opt/a",))),
        ("a.b_c-1=x 'y z' --w=v", "a.b_c-1", PluginEndpoint(command=("x", "y z", "--w=v"))),
        ("a=unix:/run/a.sock", "a", PluginEndpoint(socket=Path("/run/a.sock"))),
        ("a=x; rm -rf $HOME", "a", PluginEndpoint(command=("x;", "rm", "-rf", "$HOME"))),
        (f"{'a' * 63}=x", "a" * 63, PluginEndpoint(command=("x",))),
    ],
)
def test_a_plug_in_is_a_name_and_a_command_without_a_shell(
    text: str, name: str, endpoint: PluginEndpoint
) -> None:
    assert plugin(text) == (name, endpoint)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tickets", "'tickets' is not NAME=COMMAND, such as"),
        ("=x", "'' is not a name: write up to 63 letters"),
        ("a b=x", "'a b' is not a name"),
        ("a/b=x", "'a/b' is not a name"),
        ("-a=x", "'-a' is not a name"),
        (f"{'a' * 64}=x", "is not a name"),
        ("a=", "the command of a is empty: write a=PROGRAM ARGUMENTS"),
        ("a=  ", "the command of a is empty"),
        ("a=''", "the command of a is empty"),
        ("a='x", "the command of a: No closing quotation"),
        ("a=unix:run/a", "the socket of a is not an absolute path"),
        ("a=unix:", "the socket of a is not an absolute path"),
        (f"a=unix:/{'x' * 107}", "at most 107 bytes"),
    ],
)
def test_a_wrong_one_is_told_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as told:
        plugin(text)
    assert words in str(told.value)


def test_a_name_is_given_once() -> None:
    given = argparse.Namespace(plugin=[plugin("a=x"), plugin("b=x"), plugin("a=y")])
    with pytest.raises(CommandError, match="--plugin a is given twice"):
        plugins(given)
    given.plugin.pop()
    assert list(plugins(given)) == ["a", "b"]
