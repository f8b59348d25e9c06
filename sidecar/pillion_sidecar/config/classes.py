"""The CIM classes that a service declares, each with its place in a file."""

from collections.abc import Mapping
from typing import Any

from pillion_cim.schema import ClassDeclaration
from pillion_sidecar.config.parsing import Resource
from pillion_sidecar.config.problems import Problem
from pillion_sidecar.config.validation import Path

CLASSES, MOF, MOF_FROM = "classes", "mof", "mofFrom"


class DeclaredClasses:
    def __init__(self, service: Resource | None, files: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._service = service
        self._places: list[tuple[ClassDeclaration, str, Path]] = []
        if service is not None:
            self._add_spec(service)
        for name, text in sorted(files.items()):
            self._add_mof(text, file=name)

    @property
    def declarations(self) -> tuple[ClassDeclaration, ...]:
        return tuple(declaration for declaration, _, _ in self._places)

    def _add_spec(self, service: Resource) -> None:
        if service.sound(CLASSES):
            for number, given in enumerate(service.spec[CLASSES]):
                declaration = ClassDeclaration(given["name"], given.get("superclass"))
                self._places.append((declaration, "", ("spec", CLASSES, number)))
        if service.sound(MOF):
            self._add_mof(service.spec[MOF])
        if service.sound(MOF_FROM) and service.spec[MOF_FROM]:
            # The operator renders their text as mof.
            named = service.spec[MOF_FROM][0]["configMapRef"]["name"]
            message = "only the operator reads ConfigMaps"
            remedy = "Put the MOF into a file *.mof of this folder, or into spec.mof."
            path = ("spec", MOF_FROM)
            self.problems.append(self._problem("", path, named, message, remedy))

    def _add_mof(self, text: str, *, file: str = "") -> None:
        # Late: only a service that declares classes in MOF needs it.
        from pillion_cim.mof import MOFError, parse_mof

        try:
            declared = parse_mof(text)
        except MOFError as error:
            message = f"line {error.line} of the MOF: {error.message}"
            self.problems.append(self._problem(file, ("spec", MOF), None, message, error.remedy))
            return
        self._places += [(one, file, ("spec", MOF)) for one in declared]

    def problem(self, class_name: str, message: str, remedy: str) -> Problem:
        found = [place for place in self._places if place[0].name == class_name]
        # The last is the duplicate.
        _, file, path = found[-1] if found else (None, "", ("spec", CLASSES))
        return self._problem(file, path, class_name, f"{class_name[:80]}: {message}", remedy)

    def _problem(self, file: str, path: Path, value: Any, message: str, remedy: str) -> Problem:
        if file or self._service is None:
            return Problem(reason="Invalid", message=message, remedy=remedy, file=file)
        return self._service.place.problem("Invalid", path, value, message, remedy)
