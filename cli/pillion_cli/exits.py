"""How the ``pillion`` command ends: exit codes that scripts can use."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes."""

    #: What was asked for was done.
    OK = 0
    #: It failed: nothing of it was done, or what was checked is wrong.
    FAILED = 1
    #: The command line is wrong; nothing was tried.
    USAGE = 2
    #: A part of it was done.
    PARTLY = 3
    #: Ctrl-C, as shells have it: 128 + SIGINT.
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "what was asked for was done",
    Exit.FAILED: "it failed: nothing of it was done, or what was checked is wrong",
    Exit.USAGE: "the command line is wrong; nothing was tried",
    Exit.PARTLY: "a part of it was done, the rest was not",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}


class CommandFailed(Exception):
    """A command cannot go on; the message tells people why, and what to do."""

    def __init__(self, message: str, *, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code
