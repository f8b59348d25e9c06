"""Standard error, which the deliverer writes to its log."""

import sys


def say(text: str) -> None:
    # In one piece: print() writes the line feed after it, and threads would mix their lines.
    sys.stderr.write(f"pillion_plugin: {text}\n")
    sys.stderr.flush()
