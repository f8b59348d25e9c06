"""The options by which every command finds a deliverer, and the variables that stand for them."""

import argparse
import os

from pillion_cli.access import add_access_arguments
from pillion_cli.client import DEFAULT_URL, read_url
from pillion_cli.exits import CommandFailed

#: The deliverer's URL, where no option names it; the Spark data source reads it, too.
URL_VARIABLE = "PILLION_URL"


def add_deliverer_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """Define ``--to`` (or ``--at``), ``--ca`` and ``--token-file``; ``what`` names the listener."""
    parser.add_argument(
        "--to",
        "--at",
        dest="to",
        metavar="URL",
        type=deliverer_url,
        default=os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        help=f"{what} [${URL_VARIABLE}, else {DEFAULT_URL}]",
    )
    add_access_arguments(parser)


def deliverer_url(text: str) -> str:
    """Check a URL of the command line or of the environment. Raises ArgumentTypeError."""
    try:
        read_url(text)
    except CommandFailed as failure:
        # argparse checks the default, too.
        where = f"{URL_VARIABLE}: " if text == os.environ.get(URL_VARIABLE) else ""
        raise argparse.ArgumentTypeError(f"{where}{failure}") from None
    return text


def add_output_argument(parser: argparse.ArgumentParser, what: str = "how to show it") -> None:
    """Define ``--output``; ``table`` is the word that earlier versions had for text."""
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        type=lambda given: "text" if given == "table" else given,
        default="text",
        help=f"{what} [text]",
    )
