"""``pillion sidecar --session``."""

import argparse

import pytest

from pillion_cli.commands.sidecar import session_name


def test_a_session_without_a_name_is_refused() -> None:
    assert session_name("store-0") == "store-0"
    for text in ("", "  "):
        with pytest.raises(argparse.ArgumentTypeError, match="write a name"):
            session_name(text)
