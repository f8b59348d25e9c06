"""Classes that a service declares: in its resource, by MOF in it, and by MOF beside it."""

from pathlib import Path

import pytest

from pillion_cim.schema import ClassDeclaration
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.resources import Configuration

FILTER = """
apiVersion: pillion.dev/v1alpha1
kind: IndicationFilter
metadata: {name: f}
spec: {query: "QUERY", queryLanguage: WQL}
"""
SERVICE = """
apiVersion: pillion.dev/v1alpha1
kind: IndicationService
metadata: {name: default}
spec:
"""
MOF = "class ACME_Alert : CIM_AlertIndication { uint16 Bay; };"


def load(
    folder: Path, spec: str = "", *, query: str = "SELECT * FROM CIM_Indication", mof: str = ""
) -> Configuration:
    text = (SERVICE + spec if spec else "") + "\n---" + FILTER.replace("QUERY", query)
    (folder / "all.yaml").write_text(text)
    if mof:
        (folder / "acme.mof").write_text(mof)
    return load_folder(folder)


def problem(folder: Path, spec: str = "", **more: str) -> Problem:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, spec, **more)
    (found,) = caught.value.problems
    return found


def test_classes_of_all_three_places_are_declared(tmp_path: Path) -> None:
    spec = """
      classes: [{name: HP_Alert, superclass: ACME_Alert}]
      mof: "class ZZ_Alert : HP_Alert { };"
    """
    declared = load(tmp_path, spec, mof=MOF).service.classes
    assert [one.name for one in declared] == ["HP_Alert", "ZZ_Alert", "ACME_Alert"]
    assert declared[0] == ClassDeclaration("HP_Alert", "ACME_Alert")


def test_a_mof_file_needs_no_service(tmp_path: Path) -> None:
    assert [one.name for one in load(tmp_path, mof=MOF).service.classes] == ["ACME_Alert"]


def test_classes_are_part_of_the_revision(tmp_path: Path) -> None:
    first = "classes: [{name: HP_Alert, superclass: CIM_AlertIndication}]"
    revisions = {
        load(tmp_path, "  {}").revision,
        load(tmp_path, f"  {first}").revision,
        load(tmp_path, f"  {first}", mof=MOF).revision,
        load(tmp_path, f"  {first}", mof=MOF + " ").revision,
    }
    assert len(revisions) == 4


def test_a_class_that_cannot_be_declared_is_told_with_its_place(tmp_path: Path) -> None:
    found = problem(
        tmp_path,
        """
  classes:
    - {name: HP_Alert, superclass: CIM_AlertIndication}
    - {name: HP_Fan, superclass: CIM_Fann}
""",
    )
    assert (found.file, found.line, found.field) == ("all.yaml", 9, "spec.classes[1]")
    assert found.message == "HP_Fan: its superclass CIM_Fann is not known"
    assert "Declare it too" in found.remedy


@pytest.mark.parametrize(
    ("mof", "message"),
    [
        ("\n\nclass A {", "line 3 of the MOF: the name of a type is missing before the end"),
        ("class CIM_Indication { };", "CIM_Indication: the CIM schema has this class already"),
        ("class A : A { };", "A: it descends from itself: A : A"),
    ],
)
def test_a_mof_file_that_is_wrong_is_named(tmp_path: Path, mof: str, message: str) -> None:
    found = problem(tmp_path, mof=mof)
    assert (found.file, found.message) == ("acme.mof", message)


def test_mof_in_the_resource_that_is_wrong_is_told_with_its_field(tmp_path: Path) -> None:
    found = problem(tmp_path, '  mof: "class A { nonsense B; };"')
    assert (found.resource, found.field) == ("IndicationService/default", "spec.mof")
    assert "nonsense is not a CIM type" in found.message


def test_a_mof_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "acme.mof").write_bytes(b"\n\xff")
    found = problem(tmp_path)
    assert (found.file, found.line, found.message) == ("acme.mof", 2, "is not UTF-8")


def test_filters_are_checked_against_declared_classes(tmp_path: Path) -> None:
    good = load(tmp_path, mof=MOF, query="SELECT * FROM ACME_Alert WHERE Bay = 3")
    assert good.warnings == ()
    found = problem(tmp_path, mof=MOF, query="SELECT * FROM ACME_Alert WHERE Bey = 3")
    assert "ACME_Alert has no property Bey" in found.message


@pytest.mark.parametrize(
    ("query", "named", "meant"),
    [
        ("SELECT * FROM HP_AlertIndication", "HP_AlertIndication", "CIM_AlertIndication"),
        ("SELECT * FROM CIM_AlertIndicaton", "CIM_AlertIndicaton", "CIM_AlertIndication"),
        ("SELECT * FROM CIM_InstCreation WHERE SourceInstance ISA ZZ_Q", "ZZ_Q", None),
    ],
)
def test_a_class_that_nobody_knows_is_warned_of_and_not_refused(
    tmp_path: Path, query: str, named: str, meant: str | None
) -> None:
    (warning,) = load(tmp_path, query=query).warnings
    assert warning.startswith(f"IndicationFilter/f: no class {named} is known")
    assert ("Did you mean" in warning) is (meant is not None)
    assert meant is None or f"Did you mean {meant}?" in warning


def test_warnings_of_many_filters_are_bounded(tmp_path: Path) -> None:
    filters = [
        FILTER.replace("name: f", f"name: f{number}").replace("QUERY", f"SELECT * FROM ZZ_{number}")
        for number in range(100)
    ]
    (tmp_path / "all.yaml").write_text("\n---".join(filters))
    warnings = load_folder(tmp_path).warnings
    assert len(warnings) == 21
    assert warnings[-1] == "80 more filters name classes that are not known"


def test_mof_from_a_config_map_needs_the_operator(tmp_path: Path) -> None:
    found = problem(tmp_path, "  mofFrom: [{configMapRef: {name: acme}}]")
    assert (found.field, found.value) == ("spec.mofFrom", "'acme'")
    assert found.message == "only the operator reads ConfigMaps"
    assert found.remedy == "Put the MOF into a file *.mof of this folder, or into spec.mof."
