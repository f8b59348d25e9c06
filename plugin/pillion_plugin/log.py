"""Standard error, which the deliverer writes to its log."""

import sys


def say(text: str) -> None:
    print(f"pillion_plugin: {text}", file=sys.stderr, flush=True)
