"""Writes ``dist/pyspark_pillion.zip``: the Spark sink alone, for ``spark-submit --py-files``.

    python tools/py_files.py [FILE]

A wheel does not work there: Spark puts the file on the path as it is, and takes the end of its name
for its kind.
"""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPARK = ROOT / "spark"
#: The same content gives the same file.
_TIME = (1980, 1, 1, 0, 0, 0)


def write(file: Path) -> None:
    """Write the archive, with its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(SPARK.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = zipfile.ZipInfo(str(path.relative_to(SPARK)), _TIME)
                archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist" / "pyspark_pillion.zip"
    write(target)
    print(target)
