"""The completion of ``kubectl pillion``, as kubectl asks for it. The plug-in itself is ``pillion``
by the name ``kubectl-pillion``."""

import sys
from collections.abc import Sequence

from pillion_cli.commands.completion import candidates
from pillion_cli.exits import Exit

#: Directives of the library cobra: let the shell complete names of files, or not.
FILES, NO_FILES = 0, 4


def main(argv: Sequence[str] | None = None) -> int:
    """``kubectl_complete-pillion WORD …``: print what the last word may be, one a line, and then a
    directive."""
    words = list(sys.argv[1:] if argv is None else argv)
    found = candidates(words)
    directive = NO_FILES if found or len(words) < 2 else FILES
    print("\n".join([*found, f":{directive}"]))
    return Exit.OK
