"""Makes the packaged schema from a text listing of the CIM schema's classes.

The listing has, for each class, ``## NAME : SUPERCLASS version=… quals=[…]`` and then one line for
each property: ``- NAME : TYPE[] default=… origin=… [QUALIFIERS] {VALUE=NAME, …}``. Kept are
CIM_Indication, what descends from it, and CIM_Error; of each class only what differs from its
superclass.

    python tools/make_cim_schema.py LISTING > cim/pillion_cim/data/cim-schema-2.49.json
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

CLASS = re.compile(
    r"## (?P<name>\w+) : (?P<above>\w+) version=(?P<version>\S+) quals=(?P<quals>.*)"
)
PROPERTY = re.compile(
    r"- (?P<name>\w+) : (?P<type>\w+)(?P<array>\[\])?.*? origin=\w+ \[(?P<quals>[^\]]*)\]"
    r"(?: maxlen=\d+| min=\d+| punit=\w+)*(?: \{(?P<values>.*)\})?"
)
ROOTS = ("CIM_Indication", "CIM_Error")


def read(listing: str) -> dict[str, dict[str, Any]]:
    """Read every class of a listing, with all the properties it lists."""
    classes: dict[str, dict[str, Any]] = {}
    properties: dict[str, Any] = {}
    for line in listing.splitlines():
        if found := CLASS.match(line):
            properties = {}
            above = None if found["above"] == "None" else found["above"]
            classes[found["name"]] = {
                "name": found["name"],
                "superclass": above,
                "abstract": "'Abstract'" in found["quals"],
                "properties": properties,
            }
        elif found := PROPERTY.match(line):
            properties[found["name"]] = declaration(found)
    return classes


def declaration(found: re.Match[str]) -> dict[str, Any]:
    """What the packaged schema says of one property."""
    embedded = "'EmbeddedObject'" in found["quals"]
    declared: dict[str, Any] = {
        "type": ("object" if embedded else found["type"]) + (found["array"] or "")
    }
    if "'Required'" in found["quals"]:
        declared["required"] = True
    if found["values"]:
        # A name may hold a comma; the next entry begins with its value and "=".
        entries = re.split(r", (?=[^=,]+=)", found["values"])
        declared["values"] = dict(entry.split("=", 1) for entry in entries)
    return declared


def trim(classes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The kept classes, a superclass before its subclasses, each without what it inherits as is."""
    kept: dict[str, dict[str, Any]] = {}
    for name, found in classes.items():
        if name not in ROOTS and found["superclass"] not in kept:
            continue
        above = classes[found["superclass"]]["properties"] if found["superclass"] else {}
        own = {key: value for key, value in found["properties"].items() if above.get(key) != value}
        kept[name] = {**found, "properties": own}
    return list(kept.values())


def main(path: str) -> None:
    """Write the packaged schema to standard output."""
    classes = trim(read(Path(path).read_text(encoding="utf-8")))
    document = {"schema": "CIM 2.49.0", "classes": classes}
    print(json.dumps(document, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1])
