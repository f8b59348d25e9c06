"""Waits with an end, and lines that say what happens."""

import time
from collections.abc import Callable

#: No wait here takes longer, on a slow machine too.
PATIENCE_SECONDS = 180.0
#: Between two lines that say what is waited for.
PROGRESS_SECONDS = 10.0
#: Between two looks.
LOOK_SECONDS = 0.05


class DemoFailed(Exception):
    """The demo did not show what it is meant to show."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def until(what: Callable[[], str] | str, holds: Callable[[], bool]) -> None:
    """Wait until ``holds``. ``what``: what is waited for. Raises DemoFailed."""
    started = told = time.monotonic()
    while not holds():
        now = time.monotonic()
        if now > told + PROGRESS_SECONDS or now > started + PATIENCE_SECONDS:
            told = now
            named = what if isinstance(what, str) else what()
            if now > started + PATIENCE_SECONDS:
                raise DemoFailed(f"not within {PATIENCE_SECONDS:g} s: {named}")
            say(f"… {now - started:.0f} s: still waiting for {named}")
        time.sleep(LOOK_SECONDS)
