"""Small plug-ins for tests, each a program of its own, good and bad."""

import sys
from pathlib import Path

GOOD_INITIALIZE = 'result({"protocolVersion": 1, "name": "small", "version": "1", "inFlight": 2})'
GOOD_DELIVER = 'result({"outcome": "success"})'
_PROGRAM = """
import json, os, sys, time

def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def say(**message):
    write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n")

def result(value):
    say(id=id, result=value)

def failed(code, message):
    say(id=id, error={{"code": code, "message": message}})

{begin}
for line in sys.stdin:
    try:
        message = json.loads(line)
    except ValueError:
        {malformed}
        continue
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        {initialize}
    elif method == "deliver":
        {deliver}
    elif method == "shutdown":
        {shutdown}
    elif id is None:
        {notification}
    else:
        {other}
{end}
"""


def small_plugin(
    folder: Path,
    *,
    begin: str = "",
    initialize: str = GOOD_INITIALIZE,
    deliver: str = GOOD_DELIVER,
    malformed: str = "pass",
    shutdown: str = "break",
    notification: str = "pass",
    other: str = 'failed(-32601, "no such method")',
    end: str = "",
) -> list[str]:
    """Return the command of a plug-in that does well but for what is given."""
    parts = {
        "initialize": initialize,
        "deliver": deliver,
        "malformed": malformed,
        "shutdown": shutdown,
        "notification": notification,
        "other": other,
        "begin": begin,
        "end": end,
    }
    path = folder / "small_plugin.py"
    path.write_text(_PROGRAM.format(**parts), encoding="utf-8")
    return [sys.executable, str(path)]
