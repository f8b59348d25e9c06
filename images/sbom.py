"""Writes what an image holds as a software bill of materials, CycloneDX 1.6 in JSON, from what the
installed packages say of themselves: Python's distributions, Java's archives, Debian's packages and
Python itself. Standard library only; a builder stage runs it:
``python3 sbom.py --main NAME [--site FOLDER]… [--jars FOLDER] [--dpkg FILE] > FILE``.

The same image gives the same bytes: no time stamp, and the serial number is a digest of the rest.
"""

import argparse
import json
import platform
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

#: Of the serial numbers, which are name-based UUIDs (RFC 9562, 5.5).
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json")
#: A License field may hold a whole licence text; a name is one short line.
LONGEST_LICENSE_NAME = 80

Component = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One installed package: its component, and the components that it asks for."""

    component: Component
    needs: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        """Its ``bom-ref``, which is its package URL."""
        return cast(str, self.component["bom-ref"])


def normalized(name: str) -> str:
    """A distribution's name as package URLs and indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_packages(folders: Sequence[Path]) -> list[Package]:
    """The distributions in folders of site-packages, sorted by name.

    A requirement becomes a dependency where it is installed; one that an extra brings does not.
    """
    found = metadata.distributions(path=[str(folder) for folder in folders])
    by_name = {normalized(one.metadata["Name"]): one for one in found}
    urls = {name: _python_url(name, one.version) for name, one in by_name.items()}
    return [
        Package(
            component=_python_component(by_name[name], url=urls[name]),
            needs=tuple(sorted({urls[need] for need in _needs(by_name[name]) if need in urls})),
        )
        for name in sorted(by_name)
    ]


def _python_url(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{quote(version, safe='')}"


def _needs(distribution: metadata.Distribution) -> Iterator[str]:
    for requirement in distribution.requires or ():
        wanted, _, marker = requirement.partition(";")
        named = re.match(r"[A-Za-z0-9._-]+", wanted)
        if named and "extra" not in marker:
            yield normalized(named.group())


def _python_component(distribution: metadata.Distribution, *, url: str) -> Component:
    # importlib.metadata's own protocol has no get(); what it returns is a Message.
    fields = cast(Message, distribution.metadata)
    component: Component = {
        "type": "library",
        "bom-ref": url,
        "name": fields["Name"],
        "version": distribution.version,
        "purl": url,
    }
    if fields["Summary"]:
        component["description"] = fields["Summary"]
    if licenses := _licenses(fields):
        component["licenses"] = licenses
    return component


def _licenses(fields: Message) -> list[dict[str, Any]]:
    if expression := fields["License-Expression"]:
        return [{"expression": expression}]
    stated = (fields["License"] or "").strip()
    if stated and "\n" not in stated and len(stated) <= LONGEST_LICENSE_NAME:
        return [{"license": {"name": stated}}]
    classifiers = fields.get_all("Classifier") or []
    names = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    return [{"license": {"name": name}} for name in names]


def java_archives(folder: Path) -> list[Package]:
    """The archives in a folder, sorted. One that Maven made names its group itself."""
    return [_java_archive(path) for path in sorted(folder.glob("*.jar"))]


def _java_archive(path: Path) -> Package:
    with zipfile.ZipFile(path) as archive:
        found = [
            _properties(archive.read(entry).decode("utf-8", "replace"))
            for entry in archive.namelist()
            if re.fullmatch(r"META-INF/maven/[^/]+/[^/]+/pom\.properties", entry)
        ]
    # An archive with others inside names those too: the file's name tells which one it is itself.
    for one in found:
        group, name, version = (one.get(key) for key in ("groupId", "artifactId", "version"))
        if group and name and version and path.stem.startswith(f"{name}-{version}"):
            variant = path.stem.removeprefix(f"{name}-{version}").lstrip("-")
            url = f"pkg:maven/{group}/{name}@{quote(version)}"
            return _java_package(
                name, version, url=f"{url}?classifier={quote(variant)}" if variant else url
            )
    name, version = _name_and_version(path.stem)
    return _java_package(name, version, url=f"pkg:generic/{quote(path.name)}")


def _properties(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*?)\s*$", text, re.M))


def _name_and_version(stem: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.+?)-(\d.*)", stem)
    return (found[1], found[2]) if found else (stem, "unknown")


def _java_package(name: str, version: str, *, url: str) -> Package:
    component = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    return Package(component=component)


def debian_packages(status: str, *, distribution: str) -> list[Package]:
    """The installed packages of dpkg's status file; ``distribution`` is such as ``debian-12``."""
    found = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.M))
        if fields.get("Status", "").endswith(" installed"):
            found.append(_debian_package(fields, distribution=distribution))
    return sorted(found, key=lambda package: package.ref)


def _debian_package(fields: dict[str, str], *, distribution: str) -> Package:
    name, version = fields["Package"], fields["Version"]
    query = f"arch={fields['Architecture']}&distro={distribution}"
    url = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?{query}"
    component = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    return Package(component=component)


def python_itself() -> Package:
    """The interpreter, which no package manager knows in the official Python images."""
    version = platform.python_version()
    url = f"pkg:generic/python@{version}"
    component = {"type": "platform", "bom-ref": url, "name": "Python", "version": version}
    return Package(component={**component, "purl": url, "licenses": [{"expression": "PSF-2.0"}]})


def bill(packages: Iterable[Package], *, main: str) -> dict[str, Any]:
    """The bill of materials of an image whose main component is the package named ``main``.

    Raises ValueError where no package has that name.
    """
    held = list(packages)
    leading = [one for one in held if normalized(one.component["name"]) == normalized(main)]
    if not leading:
        raise ValueError(f"--main {main}: not among the {len(held)} installed packages")
    subject = leading[0]
    others = [one for one in held if one is not subject]
    body = {
        "metadata": {"component": {**subject.component, "type": "application"}},
        "components": [one.component for one in others],
        "dependencies": [{"ref": one.ref, "dependsOn": list(one.needs)} for one in held],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}"}
    return {**head, "version": 1, **body}


def main(arguments: list[str]) -> int:
    """Print the bill of materials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--main", required=True, help="the distribution that the image is for")
    parser.add_argument("--site", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--jars", type=Path, help="Java's archives", metavar="FOLDER")
    parser.add_argument("--dpkg", type=Path, help="dpkg's status file", metavar="FILE")
    chosen = parser.parse_args(arguments)
    packages = [*python_packages(chosen.site), python_itself()]
    if chosen.jars is not None:
        packages += java_archives(chosen.jars)
    if chosen.dpkg is not None:
        system = platform.freedesktop_os_release()
        name = f"{system['ID']}-{system.get('VERSION_ID', 'unstable')}"
        status = chosen.dpkg.read_text(encoding="utf-8")
        packages += debian_packages(status, distribution=name)
    json.dump(bill(packages, main=chosen.main), sys.stdout, indent=1, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
