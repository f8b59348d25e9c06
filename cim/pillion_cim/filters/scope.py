"""Resolves the names in a query once, when the filter is compiled. A known class's property is
looked up in its spelling. The class of an embedded instance is known only from the indication,
unless the query names it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pillion_cim.filters.lexer import FilterError
from pillion_cim.filters.syntax import Path, Query, Step
from pillion_cim.filters.values import Kind, declared_kind
from pillion_cim.model import CIMInstance, CIMValue, PropertyType
from pillion_cim.schema import Schema

Getter: TypeAlias = Callable[[CIMInstance], CIMValue]

#: Maximum cached class names; senders choose them.
_REMEMBERED = 1024


class ClassTest(dict[str, bool]):
    """Caches whether a class is ``ancestor`` or derives from it; an unknown class is only itself.
    Looked up, never written to: as a dictionary, it tests an indication in one look-up."""

    __slots__ = ("_ancestor", "_schema")

    def __init__(self, ancestor: str, *, schema: Schema) -> None:
        super().__init__()
        self._ancestor = ancestor
        self._schema = schema

    def __missing__(self, class_name: str) -> bool:
        answer = self._schema.is_a(class_name, self._ancestor)
        if len(self) >= _REMEMBERED:
            self.clear()
        self[class_name] = answer
        return answer

    def holds(self, instance: CIMInstance) -> bool:
        """Whether an instance's class is ``ancestor`` or derives from it; for an unknown class, by
        the superclass that its sender names."""
        above = instance.superclass
        return self[instance.class_name] or (above is not None and self[above])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A term that can be evaluated. ``column`` is the property's spelling if the term is just a
    property of the indication, ``constant`` the value of a constant."""

    get: Getter
    kind: Kind
    is_array: bool = False
    column: str | None = None
    constant: CIMValue = None


class Scope:
    def __init__(self, query: Query, *, text: str, schema: Schema) -> None:
        self._class_name = query.class_name
        self._own_names = {query.class_name.lower(), (query.alias or query.class_name).lower()}
        self._text = text
        self._schema = schema
        #: The classes in the query that the schema lacks.
        self.unknown_classes: dict[str, None] = {}

    def class_test(self, ancestor: str) -> ClassTest:
        if self._schema.get(ancestor) is None:
            self.unknown_classes[ancestor] = None
        return ClassTest(ancestor, schema=self._schema)

    def error(self, message: str, offset: int, remedy: str = "") -> FilterError:
        return FilterError(message, query=self._text, offset=offset, remedy=remedy)

    def offset_in_string(self, start: int, position: int) -> int:
        """The offset of the character ``position`` of a string whose body begins at ``start``."""
        quote, offset = self._text[start - 1], start
        for _ in range(position):
            offset += 2 if self._text.startswith(quote * 2, offset) else 1
        return offset

    def resolve(self, path: Path, *, advice: str = "") -> Operand:
        """Resolve ``path``; ``advice`` is the remedy for an unknown property.

        Raises:
            FilterError: the class lacks the property, an index is not into an array, or a dot does
                not follow an embedded instance.
        """
        steps = self._relative(path)
        if not steps:
            return Operand(get=_itself, kind=Kind.INSTANCE)
        operand = self._first(steps[0], advice)
        for step in steps[1:]:
            operand = self._embedded(operand, step)
        return operand

    def property_name(self, path: Path) -> str:
        """The spelling of a property in the list after SELECT.

        Raises:
            FilterError: it is not a property of the class itself.
        """
        operand = self.resolve(path)
        if operand.column is None:
            raise self.error(
                f"{path} cannot be selected: only whole properties of the class can",
                path.offset,
                "Name the property alone, or select *.",
            )
        return operand.column

    def _relative(self, path: Path) -> tuple[Step, ...]:
        first = path.steps[0]
        own = first.scope is None and first.index is None
        return path.steps[1:] if own and first.name.lower() in self._own_names else path.steps

    def _first(self, step: Step, advice: str) -> Operand:
        scope = step.scope
        if scope is None or scope.lower() in self._own_names:
            name, declared = self._declared(self._class_name, step, advice)
            return self._indexed(_operand(_property(name), declared, column=name), step)
        self._check_related(scope, step.offset)
        name, declared = self._declared(scope, step)
        get = _scoped(_property(name), self.class_test(scope))
        return self._indexed(_operand(get, declared), step)

    def _embedded(self, outer: Operand, step: Step) -> Operand:
        if outer.kind not in (Kind.INSTANCE, Kind.ANY) or outer.is_array:
            what = "an array" if outer.is_array else outer.kind.value
            remedy = "Give an index: [0]." if outer.is_array else ""
            raise self.error(
                f"{step.name} stands behind {what}, not behind an embedded instance",
                step.offset,
                remedy,
            )
        if step.scope is None:
            return self._indexed(_operand(_member(outer.get, step.name, None), None), step)
        name, declared = self._declared(step.scope, step)
        get = _member(outer.get, name, self.class_test(step.scope))
        return self._indexed(_operand(get, declared), step)

    def _indexed(self, operand: Operand, step: Step) -> Operand:
        if step.index is None:
            return operand
        if not operand.is_array and operand.kind is not Kind.ANY:
            raise self.error(f"{step.name} is not an array", step.offset, "Leave the index out.")
        return Operand(get=_item(operand.get, step.index), kind=operand.kind)

    def _check_related(self, scope: str, offset: int) -> None:
        """Refuse a scope that no indication of the filter's class can have."""
        own = self._class_name
        known = self._schema.get(scope) and self._schema.get(own)
        if known and not self.class_test(own)[scope] and not self.class_test(scope)[own]:
            message = f"{scope} is neither a subclass nor a superclass of {own}"
            raise self.error(message, offset)

    def _declared(
        self, class_name: str, step: Step, advice: str = ""
    ) -> tuple[str, PropertyType | None]:
        """The class's spelling and type of a property; as written and None without the class."""
        declaration = self._schema.get(class_name)
        if declaration is None:
            return step.name, None
        name = declaration.spelling(step.name)
        if name is not None:
            return name, declaration.types[name]
        if declaration.open:
            return step.name, None
        close = declaration.closest(step.name)
        remedy = f"Did you mean {close}?" if close else advice
        remedy = remedy or "Check the name and the class after FROM."
        raise self.error(f"{declaration.name} has no property {step.name}", step.offset, remedy)


def _operand(get: Getter, declared: PropertyType | None, *, column: str | None = None) -> Operand:
    if declared is None:
        return Operand(get=get, kind=Kind.ANY, column=column)
    kind = declared_kind(declared)
    return Operand(get=get, kind=kind, is_array=declared.is_array, column=column)


def _itself(instance: CIMInstance) -> CIMValue:
    return instance


def _property(name: str) -> Getter:
    def get(instance: CIMInstance) -> CIMValue:
        value = instance.values.get(name)
        # Only a sender of an unknown class spells a name differently.
        if value is None and name not in instance.types:
            return instance.get(name)
        return value

    return get


def _scoped(get: Getter, test: ClassTest) -> Getter:
    return lambda instance: get(instance) if test.holds(instance) else None


def _member(get: Getter, name: str, test: ClassTest | None) -> Getter:
    def member(instance: CIMInstance) -> CIMValue:
        inner = get(instance)
        if not isinstance(inner, CIMInstance) or (test is not None and not test.holds(inner)):
            return None
        return inner.get(name)

    return member


def _item(get: Getter, index: int) -> Getter:
    def item(instance: CIMInstance) -> CIMValue:
        array = get(instance)
        if not isinstance(array, tuple) or index >= len(array):
            return None
        return array[index]

    return item
