"""Lets one entry of the manual's navigation stand for a folder, so that a new page is never
forgotten: ``- Decisions: decisions/``. A page beside the index that nobody has named comes last.
"""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put the pages of a folder, its index first, where the folder is named."""
    docs = Path(config["docs_dir"])
    named = {entry for item in config["nav"] for entry in item.values()}
    config["nav"] = [
        {title: _pages(docs, entry) if entry.endswith("/") else entry}
        for item in config["nav"]
        for title, entry in item.items()
    ]
    config["nav"] += sorted({path.name for path in docs.glob("*.md")} - named)
    return config


def _pages(docs: Path, folder: str) -> list[str]:
    found = sorted((docs / folder).glob("*.md"), key=lambda path: (path.stem != "index", path.name))
    return [str(path.relative_to(docs)) for path in found]
