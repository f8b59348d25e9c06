"""Writes everything that is generated from the source, and says which files have changed.

Each generator writes its own files; the tests compare them with what is committed. ``make
generate`` also runs ``tools/generate_modules_picture.py``, which traces a deliverer for seconds.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import rows

ROOT = Path(__file__).resolve().parent.parent
#: The programs ``tools/generate_….py``.
GENERATORS = (
    "definitions",
    "resource_reference",
    "deliverer_reference",
    "cli_reference",
    "chart_reference",
    "operator_reference",
    "http_reference",
    "rules_reference",
    "spark_classes",
)
#: Where they lie.
FOLDERS = ("crds", "charts", "docs", "spark")


def _sums() -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file()
    }


def main() -> int:
    """Run every generator; 0 when each one has done its work."""
    before = _sums()
    rows.write_page()
    for generator in GENERATORS:
        subprocess.run([sys.executable, f"tools/generate_{generator}.py"], cwd=ROOT, check=True)
    after = _sums()
    changed = [name for name in sorted(after) if before.get(name) != after[name]]
    print("\n".join(f"written: {name}" for name in changed) or "all up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
