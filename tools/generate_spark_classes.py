"""Writes ``spark/pyspark_pillion/classes.json``: the classes that a Spark driver knows.

The sink imports nothing of the other packages, so it has the part of the CIM schema that it needs:
the properties of each class that can be published, their types, and the required ones.
"""

import json
from pathlib import Path

from pillion_cim.schema import load_schema

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "spark" / "pyspark_pillion" / "classes.json"


def classes_text() -> str:
    """Return the content of the file."""
    classes = {
        known.name: {
            "required": sorted(known.required),
            "types": {
                name: f"{kind.embedded or kind.cim_type}{'[]' if kind.is_array else ''}"
                for name, kind in known.types.items()
            },
        }
        for known in load_schema()
        if not known.abstract
    }
    return json.dumps(classes, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(classes_text(), encoding="utf-8")
