"""Make everything that a release publishes, in ``dist/VERSION``, and publish nothing.

    python tools/release.py [--snapshot] [--without-images]

Wheel, sdist, chart, OCI archives of the images, a bill of materials of the wheel with its
dependencies (CycloneDX), the release notes, and SHA256SUMS over all of them. A release needs a
clean working tree and a section of its version in CHANGELOG.md. A snapshot needs neither.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

import yaml

from pillion_testbed import images
from pillion_testbed.helm import CHART, find_helm

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """Nothing is released; the message says what to do first."""


def version(root: Path = ROOT) -> str:
    """Return the version of project and chart. Raises ReleaseError where they differ."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((root / "charts" / "pillion" / "Chart.yaml").read_bytes())
    found = {project["version"], chart["version"], chart["appVersion"]}
    if len(found) != 1:
        raise ReleaseError(f"project and chart have different versions: {', '.join(sorted(found))}")
    return str(project["version"])


def notes(changelog: str, section: str) -> str:
    """Return the text of one section of the changelog. Raises ReleaseError without it."""
    found = re.search(
        rf"^## \[?{re.escape(section)}\]?[^\n]*\n(.*?)(?=^## |\Z)",
        changelog,
        re.DOTALL | re.MULTILINE,
    )
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section {section}: rename Unreleased")
    return found[1].strip() + "\n"


def verify_clean(root: Path = ROOT) -> None:
    """Raises ReleaseError where a file differs from the commit."""
    changed = _output("git", "status", "--porcelain", folder=root)
    if changed:
        raise ReleaseError(f"the working tree has changes; commit them:\n{changed}")


def write_sums(folder: Path) -> None:
    """Write the digests of all files of a folder, in the form that ``sha256sum --check`` reads."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def make_release(folder: Path, *, snapshot: bool, with_images: bool) -> None:
    """Fill an empty folder. Raises ReleaseError, subprocess.CalledProcessError."""
    number = version()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    text = notes(changelog, "Unreleased" if snapshot else number)
    if not snapshot:
        verify_clean()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "NOTES.md").write_text(text, encoding="utf-8")
    _output(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), ".")
    (wheel,) = folder.glob("*.whl")
    _write_sbom(wheel, folder / f"pillion-{number}.cdx.json")
    with tempfile.TemporaryDirectory() as cache:
        find_helm(Path(cache)).run("package", str(CHART), "--destination", str(folder))
    if with_images:
        for image in (images.deliverer(), images.spark()):
            name = image.repository.rpartition("/")[2]
            shutil.copyfile(image.archive, folder / f"{name}-{number}.oci.tar")
    write_sums(folder)


def _write_sbom(wheel: Path, sbom: Path) -> None:
    """Describe the wheel and all that it needs, as they are installed into a new environment."""
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, with_pip=True)
        python = str(Path(name) / "bin" / "python")
        constraints = str(ROOT / "requirements" / "constraints.txt")
        _output(
            *(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--constraint", constraints, f"{wheel}[cli,operator]"),
        )
        (site,) = (Path(name) / "lib").glob("python*/site-packages")
        arguments = ("--main", "pillion", "--site", str(site))
        sbom.write_text(_output(python, str(ROOT / "images" / "sbom.py"), *arguments))


def _output(*command: str, folder: Path = ROOT) -> str:
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make what a release publishes, in dist/VERSION.")
    parser.add_argument("--snapshot", action="store_true", help="of the working tree as it is")
    parser.add_argument("--without-images", action="store_true", help="images need root on Linux")
    options = parser.parse_args(arguments)
    if not options.without_images and os.geteuid() != 0:
        parser.error("images are built as root: become root, or use --without-images")
    try:
        folder = ROOT / "dist" / (f"{version()}-snapshot" if options.snapshot else version())
        make_release(folder, snapshot=options.snapshot, with_images=not options.without_images)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"release: {' '.join(error.cmd)} ended with {error.returncode}", file=sys.stderr)
        return 1
    print((folder / SUMS).read_text(encoding="utf-8"), end="")
    print(f"nothing is published: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
