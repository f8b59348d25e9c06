"""Runs the steps of a tutorial in a process of its own; writes the page with what they print."""

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

STEP = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<prints>.*?)```\n)?", re.DOTALL)


def page(text: str, *, name: str) -> str:
    """The page as it would be now. A step without output must print nothing."""
    names: dict[str, Any] = {}

    def run(step: re.Match[str]) -> str:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(step["code"], name, "exec"), names)
        lines = (line.rstrip() for line in printed.getvalue().splitlines())
        shown = "".join(f"{line}\n" for line in lines if line)
        if step["prints"] is None:
            assert shown == ""
            return step[0]
        return f"```python\n{step['code']}```\n\n```text\n{shown}```\n"

    return STEP.sub(run, text)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    made = page(source.read_text(encoding="utf-8"), name=source.name)
    target.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
