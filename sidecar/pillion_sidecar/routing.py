"""Routing of indications to subscriptions. Filters are compiled once for each revision."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from operator import attrgetter

import msgspec

from pillion_cim.filters import Filter, compile_filter
from pillion_cim.jsonform import decode_instance
from pillion_cim.model import CIMInstance
from pillion_cim.schema import Schema, extend
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.deliverer import DelivererMode
from pillion_sidecar.config.schema.subscription import (
    IndicationSubscription,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.direct import destination_uid, direct_target
from pillion_sidecar.indication import (
    InstanceSource,
    Select,
    Selection,
    Target,
    selected_body,
    selection_of,
)

#: Undeclared classes whose routes are cached.
MOST_UNDECLARED = 256


class Aim:
    """The target of a subscription, and what makes indications repeats for it."""

    __slots__ = ("repeat_key", "target")

    def __init__(self, subscription: IndicationSubscription, *, relayed: bool = False) -> None:
        """``relayed``: whether a gateway delivers it."""
        self.target = Target(
            subscription=subscription.name,
            filter_name=subscription.filter_name,
            destination=subscription.destination_name,
            relayed=relayed,
        )
        repeat = subscription.repeat_notification
        self.repeat_key = None if repeat.policy is RepeatPolicy.NONE else repeat.key

    def at(self, instance: CIMInstance) -> Target:
        if self.repeat_key is None:
            return self.target
        return replace(self.target, event=_event(instance, self.repeat_key))


class NotSelected(StrEnum):
    """Why a filter does not select an indication."""

    CLASS = "class"
    SOURCE_NAMESPACE = "source-namespace"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a route makes of an indication."""

    target: Target
    #: None: it selects it.
    why_not: NotSelected | None
    #: Of the filter's WHERE; False for another class, None: unknown.
    value: bool | None


class Route:
    __slots__ = ("_aim", "filter", "namespaces", "position", "target")

    def __init__(
        self,
        subscription: IndicationSubscription,
        *,
        position: int,
        compiled: Filter,
        source_namespaces: Sequence[str],
        relayed: bool = False,
    ) -> None:
        """``position`` orders the targets."""
        self.position = position
        self.filter = compiled
        self.namespaces = frozenset(namespace.casefold() for namespace in source_namespaces)
        self._aim = Aim(subscription, relayed=relayed)
        self.target = self._aim.target

    @property
    def needs_instance(self) -> bool:
        """Whether the class alone does not decide."""
        return self.filter.has_condition or self._aim.repeat_key is not None

    def selects_namespace(self, namespace: str | None) -> bool:
        if not self.namespaces:
            return True
        return namespace is not None and namespace.casefold() in self.namespaces

    def judge(self, instance: CIMInstance, source_namespace: str | None) -> Judgement:
        classes = (instance.class_name, instance.superclass)
        if not any(name is not None and self.filter.selects(name) for name in classes):
            return Judgement(self.target, NotSelected.CLASS, value=False)
        value = self.filter.condition(instance)
        why_not = None if value is True else NotSelected.QUERY
        if not self.selects_namespace(source_namespace):
            why_not = NotSelected.SOURCE_NAMESPACE
        return Judgement(self.target, why_not, value)

    def targeted(self, instance: CIMInstance) -> Target | None:
        """Return the target, if the condition holds; the class is already selected."""
        if self.filter.has_condition and self.filter.condition(instance) is not True:
            return None
        return self._aim.at(instance)


def _selected(
    compiled: Filter, schema: Schema, selection: Selection | None, body: bytes
) -> bytes | None:
    try:
        if not compiled.matches(decode_instance(msgspec.json.decode(body), schema=schema)):
            return None
        return body if selection is None else selected_body(body, selection)
    except ValueError:
        # No instance any more: a class was declared otherwise.
        return None


def _event(instance: CIMInstance, key: Sequence[str]) -> Hashable:
    return (instance.class_name, *(repr(instance.get(name)) for name in key))


class Router:
    """Looks routes up by class, then by demanded values, and evaluates the rest."""

    def __init__(self, configuration: Configuration, *, schema: Schema) -> None:
        #: The packaged classes, and those that the service declares.
        self.schema = schema = extend(schema, configuration.service.classes)
        compiled = {
            name: compile_filter(
                resource.query, language=resource.query_language.value, schema=schema
            )
            for name, resource in configuration.filters.items()
        }
        #: By the names of the filters that list properties.
        self.selections: dict[str, Selection] = {
            name: selection_of(found.properties)
            for name, found in compiled.items()
            if found.properties is not None
        }
        #: By the names of all filters.
        self.selects: dict[str, Select] = {
            name: partial(_selected, found, schema, self.selections.get(name))
            for name, found in compiled.items()
        }
        relayed = {
            name
            for name, destination in configuration.destinations.items()
            if destination.relay_to is not None
        }
        self._routes = [
            Route(
                subscription,
                position=position,
                compiled=compiled[subscription.filter_name],
                source_namespaces=configuration.filters[subscription.filter_name].source_namespaces,
                relayed=subscription.destination_name in relayed,
            )
            for position, subscription in enumerate(configuration.subscriptions.values())
        ]
        self._by_class: dict[str, _ClassRoutes] = {}
        # Undeclared classes: by name, if a filter has it, and superclass.
        self._undeclared: dict[tuple[str, str], _ClassRoutes] = {}
        self._selected = {
            name.casefold() for found in compiled.values() for name in found.class_names
        }
        #: See ``indication.Routes``.
        self.takes_relayed = configuration.service.deliverer.mode is DelivererMode.GATEWAY
        self._destinations = {
            destination.uid: name for name, destination in configuration.destinations.items()
        }
        self._relayed = {
            subscription.uid: Aim(subscription)
            for subscription in configuration.relayed.values()
            # Still relayed though disabled here: one of the two configurations is out of date.
            if subscription.state is SubscriptionState.ENABLED
        }

    def route(
        self, class_name: str, instance: InstanceSource, source_namespace: str | None
    ) -> Sequence[Target]:
        routes = self._by_class.get(class_name)
        if routes is None:
            routes = self._class_routes(class_name, instance)
        if routes.fixed is not None:
            return routes.fixed
        decoded = instance() if routes.needs_instance else CIMInstance(class_name)
        targets = []
        for route in routes.candidates(decoded):
            if not route.namespaces or route.selects_namespace(source_namespace):
                target = route.targeted(decoded)
                if target is not None:
                    targets.append(target)
        return targets

    def judge(self, instance: CIMInstance, source_namespace: str | None) -> list[Judgement]:
        """Return what each subscription makes of an indication. Any thread may call it."""
        return [route.judge(instance, source_namespace) for route in self._routes]

    def relayed(self, subscription: str, instance: InstanceSource) -> Target | None:
        """Return the target of a relayed indication for a subscription uid; None if no enabled one
        is known. The sidecar has evaluated its filter."""
        if (uid := destination_uid(subscription)) is not None:
            name = self._destinations.get(uid)
            return None if name is None else direct_target(name)
        aim = self._relayed.get(subscription)
        if aim is None or aim.repeat_key is None:
            return None if aim is None else aim.target
        return aim.at(instance())

    def knows(self, subscription: str) -> bool:
        if (uid := destination_uid(subscription)) is not None:
            return uid in self._destinations
        return subscription in self._relayed

    def _class_routes(self, class_name: str, instance: InstanceSource) -> "_ClassRoutes":
        if self.schema.get(class_name) is not None:
            routes = self._by_class[class_name] = self._routes_of(class_name)
            return routes
        superclass = instance().superclass or ""
        key = self._told_apart(class_name), self._told_apart(superclass)
        found = self._undeclared.get(key)
        if found is None:
            if len(self._undeclared) >= MOST_UNDECLARED:
                self._undeclared.clear()
            found = self._undeclared[key] = self._routes_of(class_name, superclass)
        return found

    def _told_apart(self, class_name: str) -> str:
        """The class, if routes may depend on it; publishers choose the names."""
        name = class_name.casefold()
        return name if name in self._selected or self.schema.get(name) is not None else ""

    def _routes_of(self, *class_names: str) -> "_ClassRoutes":
        return _ClassRoutes(
            [route for route in self._routes if any(map(route.filter.selects, class_names))]
        )


class _ClassRoutes:
    """The routes that a class selects; ``fixed`` if all its instances have the same targets."""

    __slots__ = ("_evaluated", "_tables", "fixed", "needs_instance")

    def __init__(self, routes: Sequence[Route]) -> None:
        self.needs_instance = any(route.needs_instance for route in routes)
        undecided = self.needs_instance or any(route.namespaces for route in routes)
        self.fixed = None if undecided else tuple(route.target for route in routes)
        self._evaluated = [route for route in routes if route.filter.demand is None]
        tables: dict[tuple[str, type], _DemandTable] = {}
        for route in routes:
            demand = route.filter.demand
            if demand is not None:
                key = demand.column, type(demand.value)
                tables.setdefault(key, _DemandTable(*key)).add(route, demand.value)
        self._tables = list(tables.values())

    def candidates(self, instance: CIMInstance) -> Sequence[Route]:
        """Return the possible routes of an instance, in order, narrowed by look-up."""
        if not self._tables:
            return self._evaluated
        if not self._evaluated and len(self._tables) == 1:
            return self._tables[0].candidates(instance)
        found = list(self._evaluated)
        for table in self._tables:
            found += table.candidates(instance)
        if len(found) > 1:
            found.sort(key=_position)
        return found


_position = attrgetter("position")


class _DemandTable:
    """The routes whose filters demand values of one property and type, by value."""

    __slots__ = ("_by_value", "_column", "_routes", "_type")

    def __init__(self, column: str, value_type: type) -> None:
        self._column = column
        self._type = value_type
        self._routes: list[Route] = []
        self._by_value: dict[object, list[Route]] = {}

    def add(self, route: Route, value: str | int) -> None:
        self._routes.append(route)
        self._by_value.setdefault(value, []).append(route)

    def candidates(self, instance: CIMInstance) -> Sequence[Route]:
        value = instance.values.get(self._column)
        if value.__class__ is self._type:
            return self._by_value.get(value, ())
        # NULL, absent or of another type: the condition itself decides.
        return self._routes
