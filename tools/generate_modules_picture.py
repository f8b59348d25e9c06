"""Draw docs/assets/modules.svg: the modules that one indication passes.

The left half shows the first release, which this file states. The right half shows this tree, by
the trace of ``tools/house.py``.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from house import ROOT, trace_one_indication

PICTURE = ROOT / "docs/assets/modules.svg"
OTHERS = "others"
#: By package: what it does, and its modules in the first release.
PACKAGES: Mapping[str, tuple[str, str]] = {
    "auth": ("connections: TLS, tokens, limits", "entrance places"),
    "intake": (
        "read, decode, answer",
        "server gate publishing parameters acknowledging acceptance budget ndjson bodies lines"
        " fastpath answers",
    ),
    "reliability": ("duplicates, groups, receipts", "tracking identity duplicates packed"),
    "delivery": (
        "queues, attempts, settlement",
        "service taking table subscribing queue sequence keeping answering subscriptions waiting"
        " dispatcher pauses entry concluding attempts settling packed discarding",
    ),
    "journal": (
        "on disk",
        "disk log naming records settling bounds workers tail files segments marks reserving"
        " compaction discards",
    ),
    "handlers": ("CIM-XML over HTTP", "cimxml fields sender channel wire"),
    "telemetry": ("metrics", "metrics journal histogram"),
    "pillion_cim": (
        "CIM model and codecs",
        "decode schema export elements escape recognised response headers",
    ),
    OTHERS: (
        "clock, routing, connections, app",
        "connections clock origins queryparameters routing journaling app",
    ),
}
#: Pixels: the first row, the height of a row, the columns, the width of a square with its gap.
TOP, ROW, NAMES, BEFORE, NOW, SQUARE = 60, 46, 225, 250, 640, 17
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 514" role="img" aria-labelledby="t d" \
font-family="system-ui, sans-serif" font-size="15">
  <title id="t">Modules on the way of one indication</title>
  <desc id="d">One square for each module that one indication passes, by package, \
before the rebuild ({before}) and now ({now}).</desc>
  <style>.a{{fill:#d5d8e8}}.b{{fill:#5c6bc0}}.n{{fill:#1a237e}}\
.s{{fill:#4b5068;font-size:12.5px}}.e{{text-anchor:end}}</style>
  <rect width="980" height="514" rx="10" fill="#fafaff"/>
  <text class="n" x="250" y="34">before: {before} modules</text>\
<text class="n" x="640" y="34">now: {now} modules</text>
"""
FOOT = """\
  <text class="s" x="40" y="484">One square is one module: NDJSON with ack=durable, \
journal on disk, delivered as CIM-XML (tools/house.py).</text>
</svg>
"""


def by_package(paths: Iterable[str]) -> dict[str, list[str]]:
    """Names of modules, sorted, by the package in the picture."""
    found: dict[str, list[str]] = {package: [] for package in PACKAGES}
    for path in map(Path, sorted(set(paths))):
        name = path.parent.name if path.stem == "__init__" else path.stem
        # sidecar/pillion_sidecar/PACKAGE/…, cim/pillion_cim/…
        package = next((part for part in path.parts[1:-1] if part in PACKAGES), OTHERS)
        found[package].append(name)
    return {package: sorted(names) for package, names in found.items()}


def drawing(now: Mapping[str, Sequence[str]]) -> str:
    """The picture."""
    before = {package: names.split() for package, (_, names) in PACKAGES.items()}
    lines = [HEAD.format(before=_total(before), now=_total(now))]
    for y, (package, (subject, _)) in zip(range(TOP, 1000, ROW), PACKAGES.items(), strict=False):
        lines.append(
            f'  <text class="n e" x="{NAMES}" y="{y + 9}">{package}</text>'
            f'<text class="s e" x="{NAMES}" y="{y + 25}">{subject}</text>\n'
        )
        lines += _squares(before[package], kind="a", x=BEFORE, y=y)
        lines += _squares(now[package], kind="b", x=NOW, y=y)
    return "".join((*lines, FOOT))


def _total(modules: Mapping[str, Sequence[str]]) -> int:
    return sum(map(len, modules.values()))


def _squares(names: Sequence[str], *, kind: str, x: int, y: int) -> Iterator[str]:
    for place, name in enumerate(names):
        yield (
            f'  <rect class="{kind}" x="{x + place * SQUARE}" y="{y}" width="13" height="22"'
            f' rx="2"><title>{name}</title></rect>\n'
        )
    end = x + len(names) * SQUARE + 6
    yield f'  <text class="s" x="{end}" y="{y + 16}">{len(names)}</text>\n'


def main() -> int:
    """Trace, and write the picture."""
    modules = by_package(name for name, _ in trace_one_indication().calls)
    PICTURE.write_text(drawing(modules), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
