"""Lets one entry of the manual's navigation stand for a folder, so that a new page is never
forgotten: ``- Decisions: decisions/``.
"""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put the pages of a folder, its index first, where the folder is named."""
    config["nav"] = _expanded(config["nav"], Path(config["docs_dir"]))
    return config


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, list):
        return [_expanded(one, docs) for one in entry]
    if isinstance(entry, dict):
        return {title: _expanded(one, docs) for title, one in entry.items()}
    return _pages(docs, entry) if entry.endswith("/") else entry


def _pages(docs: Path, folder: str) -> list[str]:
    found = sorted((docs / folder).glob("*.md"), key=lambda path: (path.stem != "index", path.name))
    return [str(path.relative_to(docs)) for path in found]
