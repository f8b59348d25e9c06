"""Writes what comes from the resource schema: ``crds/``, the chart's copies of it, and
``docs/reference/resources.md`` and ``protocols.md``."""

from pathlib import Path

from pillion_sidecar.config import crd, reference
from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.protocols import PROTOCOLS

ROOT = Path(__file__).resolve().parent.parent
#: Helm reads only what lies in the chart's own folder.
DEFINITIONS = (ROOT / "crds", ROOT / "charts" / "pillion" / "files" / "crds")


def main() -> None:
    """Write the files."""
    for folder in DEFINITIONS:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            (folder / crd.file_name(kind)).write_text(crd.render(kind), encoding="utf-8")
    page = ROOT / "docs" / "reference" / "resources.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(reference.render(), encoding="utf-8")
    protocols = reference.render_protocols(PROTOCOLS.values())
    page.with_name("protocols.md").write_text(protocols, encoding="utf-8")


if __name__ == "__main__":
    main()
