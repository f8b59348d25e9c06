"""``pillion completion``: completion of commands, options and choices in three shells."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence

from pillion_cli import main
from pillion_cli.arguments import file_path
from pillion_cli.exits import CommandError, Exit

HELP = """
Print the completion of a shell: commands, options, and the values of those that have a choice. It
asks no deliverer, so names of destinations are not completed. In zsh add `source ~/.pillion.zsh` to
~/.zshrc.

As a plug-in of kubectl (`kubectl pillion`) the command needs none of this: kubectl completes it by
the program kubectl_complete-pillion, which is installed with it.

examples:
  pillion completion bash | install -D /dev/stdin ~/.local/share/bash-completion/completions/pillion
  pillion completion zsh | install -D /dev/stdin ~/.pillion.zsh
  pillion completion fish | install -D /dev/stdin ~/.config/fish/completions/pillion.fish

exit codes: 0 done, 2 a wrong command line.
"""

_BASH = """\
_pillion() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words=""
  case "$COMP_CWORD ${{COMP_WORDS[1]}} $prev" in
    "1 "*) words="{commands} --help --version" ;;
{values}
    *) case "${{COMP_WORDS[1]}} $cur" in
{options}
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _pillion pillion
"""
# A second compinit would ask about insecure folders again.
_ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
autoload -Uz bashcompinit && bashcompinit
"""


#: Positional arguments that are files.
_FILES = ("FILE", "DIR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    print(SHELLS[args.shell](), end="")
    return Exit.OK


def _actions(name: str) -> list[argparse.Action]:
    try:
        parser = main.command_parser(name, main.load(name))
    except CommandError:
        # Its packages are not installed.
        return []
    return [one for one in parser._actions if one.help is not argparse.SUPPRESS]


def _choices(action: argparse.Action) -> str:
    return " ".join(map(str, action.choices or ()))


def bash() -> str:
    """The words of a choice, an option's or a positional argument's; else names of files."""
    values, options = list[str](), list[str]()
    for name in main.COMMANDS:
        actions = _actions(name)
        keys: dict[str, list[str]] = {}
        for action in actions:
            if action.nargs != 0:
                of_it = keys.setdefault(_choices(action), [])
                of_it += (f'*" {name} {option}"' for option in action.option_strings)
        values += (f'    {"|".join(of)}) words="{words}" ;;' for words, of in keys.items() if of)
        every = " ".join(option for one in actions for option in one.option_strings)
        options.append(f'      "{name} -"*) words="{every}" ;;')
        if plain := " ".join(_choices(one) for one in actions if not one.option_strings).strip():
            options.append(f'      "{name} "*) words="{plain}" ;;')
    return _BASH.format(
        commands=" ".join(main.COMMANDS), values="\n".join(values), options="\n".join(options)
    )


def zsh() -> str:
    return _ZSH + bash()


def fish() -> str:
    return "".join(f"complete -c pillion {line}\n" for line in _fish())


def _fish() -> Iterator[str]:
    yield "-f"
    for name, text in main.COMMANDS.items():
        yield f"-n __fish_use_subcommand -a {name} -d {_quoted(text)}"
    for name in main.COMMANDS:
        of_it = f"-n '__fish_seen_subcommand_from {name}'"
        for action in _actions(name):
            yield f"{of_it} {_fish_action(action)}"


def _fish_action(action: argparse.Action) -> str:
    words = f" -a '{_choices(action)}'" if action.choices is not None else ""
    if not action.option_strings:
        return words.strip() or ("-F" if action.metavar in _FILES else "-f")
    kinds = {True: "-l", False: "-s"}
    names = " ".join(
        f"{kinds[option.startswith('--')]} {option.lstrip('-')}" for option in action.option_strings
    )
    takes = "" if action.nargs == 0 else " -r -F" if action.type is file_path else " -x"
    return f"{names}{takes}{words} -d {_quoted(action.help or '')}"


def candidates(words: Sequence[str]) -> list[str]:
    """What the last one of the words behind ``pillion`` may be: each with a tab and its help."""
    *before, current = words or [""]
    if not before:
        return _beginning(current, main.COMMANDS)
    actions = _actions(before[0]) if before[0] in main.COMMANDS else []
    for action in actions:
        if action.nargs != 0 and before[-1] in action.option_strings:
            return _beginning(current, dict.fromkeys(map(str, action.choices or ()), ""))
    found: dict[str, str] = {}
    for action in actions:
        if current.startswith("-"):
            found |= dict.fromkeys(action.option_strings, _plain(action.help or ""))
        elif not action.option_strings:
            found |= dict.fromkeys(map(str, action.choices or ()), "")
    return _beginning(current, found)


def _beginning(current: str, known: Mapping[str, str]) -> list[str]:
    return [
        f"{word}\t{text}" if text else word
        for word, text in known.items()
        if word.startswith(current)
    ]


def _plain(text: str) -> str:
    # What is in brackets at the end is the default.
    return re.sub(r" \[[^]]*\]$", "", text).replace("%%", "%")


def _quoted(text: str) -> str:
    text = _plain(text)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
