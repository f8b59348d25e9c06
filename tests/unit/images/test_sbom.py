"""The bill of materials of an image: CycloneDX 1.6, from what packages say of themselves."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.image_tools import image_tool

sbom = image_tool("sbom")

DPKG = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 1:12.2.0-14
Description: the library
 with more: lines
"""


def distribution(site: Path, name: str, version: str, *fields: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ("Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *fields)
    (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    distribution(
        folder,
        "pillion",
        "0.1.0",
        "License-Expression: Apache-2.0",
        "Requires-Dist: prometheus-client<1",
        'Requires-Dist: Zope.Thing>=1; python_version >= "3.11"',
        'Requires-Dist: absent>=1; sys_platform == "win32"',
        'Requires-Dist: lxml; extra == "sidecar"',
    )
    distribution(folder, "prometheus_client", "0.26.0", "License: Apache Software License 2.0")
    distribution(folder, "zope-thing", "1.0+local", "Classifier: License :: OSI Approved :: MIT")
    distribution(folder, "lxml", "6.1.3", "License: " + "x" * 100)
    return folder


def jar(folder: Path, name: str, **entries: str) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        for artifact, version in entries.items():
            place = f"META-INF/maven/org.example/{artifact}/pom.properties"
            named = f"groupId=org.example\nartifactId={artifact}\nversion={version}\r\n"
            archive.writestr(place, named)


def components(bill: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = [bill["metadata"]["component"], *bill["components"]]
    return {one["purl"]: one for one in found}


def check(bill: dict[str, Any]) -> None:
    """What the schema of CycloneDX 1.6 asks of the parts that are used."""
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["specVersion"] == "1.6"
    assert isinstance(bill["version"], int)
    identifier = r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    assert re.fullmatch(identifier, bill["serialNumber"])
    found = [bill["metadata"]["component"], *bill["components"]]
    references = [one["bom-ref"] for one in found]
    assert len(references) == len(set(references))
    for one in found:
        assert one["type"] in {"application", "library", "platform"}
        assert one["name"]
        assert one["version"]
        assert re.fullmatch(r"pkg:(pypi|deb|maven|generic)/[^\s]+", one["purl"])
        for choice in one.get("licenses", ()):
            assert set(choice) in ({"expression"}, {"license"})
        # An expression stands alone.
        assert len(one.get("licenses", ())) <= 1 or "expression" not in str(one["licenses"])
    assert sorted(one["ref"] for one in bill["dependencies"]) == sorted(references)
    assert {need for one in bill["dependencies"] for need in one["dependsOn"]} <= set(references)


def test_distributions_are_listed_with_names_as_an_index_has_them(site: Path) -> None:
    bill = sbom.bill(sbom.python_packages([site]), main="Pillion")
    check(bill)
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/pillion@0.1.0"
    assert bill["metadata"]["component"]["type"] == "application"
    assert [one["purl"] for one in bill["components"]] == [
        "pkg:pypi/lxml@6.1.3",
        "pkg:pypi/prometheus-client@0.26.0",
        "pkg:pypi/zope-thing@1.0%2Blocal",
    ]


def test_licences_are_what_the_package_states_in_the_strongest_form_that_it_has(site: Path) -> None:
    found = components(sbom.bill(sbom.python_packages([site]), main="pillion"))
    assert found["pkg:pypi/pillion@0.1.0"]["licenses"] == [{"expression": "Apache-2.0"}]
    stated = [{"license": {"name": "Apache Software License 2.0"}}]
    assert found["pkg:pypi/prometheus-client@0.26.0"]["licenses"] == stated
    assert found["pkg:pypi/zope-thing@1.0%2Blocal"]["licenses"] == [{"license": {"name": "MIT"}}]
    # A whole licence is no name of one.
    assert "licenses" not in found["pkg:pypi/lxml@6.1.3"]


def test_a_dependency_is_what_is_asked_for_and_installed(site: Path) -> None:
    bill = sbom.bill(sbom.python_packages([site]), main="pillion")
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needs["pkg:pypi/pillion@0.1.0"] == [
        "pkg:pypi/prometheus-client@0.26.0",
        "pkg:pypi/zope-thing@1.0%2Blocal",
    ]


def test_debian_packages_are_listed_where_they_are_installed() -> None:
    found = sbom.debian_packages(DPKG, distribution="debian-12")
    assert [one.ref for one in found] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2.0-14?arch=amd64&distro=debian-12",
    ]


def test_archives_of_java_are_named_by_maven_or_else_by_their_file(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jar(jars, "shading-2.0.jar", shaded="1.0", shading="2.0")
    jar(jars, "native-3.1-linux-x86_64.jar", native="3.1")
    jar(jars, "native-3.1-linux-aarch_64.jar", native="3.1")
    jar(jars, "scala_2.13-9.jar")
    jar(jars, "bare.jar")
    packages = sbom.java_archives(jars)
    assert [one.ref for one in packages] == [
        "pkg:generic/bare.jar",
        "pkg:maven/org.example/native@3.1?classifier=linux-aarch_64",
        "pkg:maven/org.example/native@3.1?classifier=linux-x86_64",
        "pkg:generic/scala_2.13-9.jar",
        "pkg:maven/org.example/shading@2.0",
    ]
    versions = {one.component["name"]: one.component["version"] for one in packages}
    expected = {"bare": "unknown", "native": "3.1", "scala_2.13": "9", "shading": "2.0"}
    assert versions == expected
    check(sbom.bill(packages, main="shading"))


def test_the_same_image_gives_the_same_bytes_and_another_another_serial_number(site: Path) -> None:
    first = sbom.bill(sbom.python_packages([site]), main="pillion")
    assert sbom.bill(sbom.python_packages([site]), main="pillion") == first
    distribution(site, "late", "1")
    assert (
        sbom.bill(sbom.python_packages([site]), main="pillion")["serialNumber"]
        != (first["serialNumber"])
    )


def test_the_main_component_has_to_be_there(site: Path) -> None:
    with pytest.raises(ValueError, match="--main other: not among the 4 installed packages"):
        sbom.bill(sbom.python_packages([site]), main="other")


def test_the_program_prints_all_of_it(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, jars = tmp_path / "status", tmp_path / "jars"
    status.write_text(DPKG)
    jar(jars, "bare.jar")
    given = ["--site", str(site), "--jars", str(jars), "--dpkg", str(status)]
    assert sbom.main(["--main", "pillion", *given]) == 0
    bill = json.loads(capsys.readouterr().out)
    check(bill)
    kinds = {purl.partition("/")[0] for purl in components(bill)}
    assert kinds == {"pkg:pypi", "pkg:deb", "pkg:generic"}
    assert any(purl.startswith("pkg:generic/python@3.") for purl in components(bill))
