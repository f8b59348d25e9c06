"""Routing: who is subscribed to an indication. Filters are compiled once, when a revision comes."""

from collections.abc import Hashable, Sequence

from pillion_cim.filters import Filter, compile_filter
from pillion_cim.model import CIMInstance
from pillion_cim.schema import Schema
from pillion_sidecar.config.resources import Configuration, IndicationSubscription, RepeatPolicy
from pillion_sidecar.intake.ports import InstanceSource, Target


class Route:
    """One subscription, as routing sees it: its target, its filter, its repeat key."""

    __slots__ = ("_repeat_key", "filter", "namespaces", "target")

    def __init__(
        self,
        subscription: IndicationSubscription,
        *,
        compiled: Filter,
        source_namespaces: Sequence[str],
    ) -> None:
        self.filter = compiled
        self.namespaces = frozenset(namespace.casefold() for namespace in source_namespaces)
        self.target = Target(
            subscription=subscription.name,
            filter_name=subscription.filter_name,
            destination=subscription.destination_name,
        )
        repeat = subscription.repeat_notification
        self._repeat_key = None if repeat.policy is RepeatPolicy.NONE else repeat.key

    @property
    def needs_instance(self) -> bool:
        """Whether the class alone does not decide."""
        return self.filter.has_condition or self._repeat_key is not None

    def selects_namespace(self, namespace: str | None) -> bool:
        """Whether the filter's sourceNamespaces let an indication of ``namespace`` through."""
        if not self.namespaces:
            return True
        return namespace is not None and namespace.casefold() in self.namespaces

    def targeted(self, instance: CIMInstance) -> Target | None:
        """Return the target of ``instance``, whose class is known to be selected, or None."""
        if self.filter.has_condition and self.filter.condition(instance) is not True:
            return None
        if self._repeat_key is None:
            return self.target
        return Target(
            subscription=self.target.subscription,
            filter_name=self.target.filter_name,
            destination=self.target.destination,
            event=_event(instance, self._repeat_key),
        )


def _event(instance: CIMInstance, key: Sequence[str]) -> Hashable:
    return (instance.class_name, *(repr(instance.get(name)) for name in key))


class Router:
    """Routes by class first, which is a look-up, and by condition only where there is one."""

    def __init__(self, configuration: Configuration, *, schema: Schema) -> None:
        compiled = {
            name: compile_filter(
                resource.query, language=resource.query_language.value, schema=schema
            )
            for name, resource in configuration.filters.items()
        }
        self._routes = [
            Route(
                subscription,
                compiled=compiled[subscription.filter_name],
                source_namespaces=configuration.filters[subscription.filter_name].source_namespaces,
            )
            for subscription in configuration.subscriptions.values()
        ]
        self._schema = schema
        self._by_class: dict[str, _ClassRoutes] = {}

    def route(
        self, class_name: str, instance: InstanceSource, source_namespace: str | None
    ) -> Sequence[Target]:
        """Return the targets of an indication; none where nobody has subscribed to it."""
        routes = self._by_class.get(class_name)
        if routes is None:
            routes = self._class_routes(class_name)
        if routes.fixed is not None:
            return routes.fixed
        decoded = instance() if routes.needs_instance else CIMInstance(class_name)
        targets = (
            route.targeted(decoded)
            for route in routes.candidates
            if route.selects_namespace(source_namespace)
        )
        return [target for target in targets if target is not None]

    def _class_routes(self, class_name: str) -> "_ClassRoutes":
        routes = _ClassRoutes([route for route in self._routes if route.filter.selects(class_name)])
        # Class names come from publishers: only those of the schema are remembered.
        if self._schema.get(class_name) is not None:
            self._by_class[class_name] = routes
        return routes


class _ClassRoutes:
    """The routes that a class selects; ``fixed`` where its instances all have the same targets."""

    __slots__ = ("candidates", "fixed", "needs_instance")

    def __init__(self, candidates: Sequence[Route]) -> None:
        self.candidates = candidates
        self.needs_instance = any(route.needs_instance for route in candidates)
        undecided = self.needs_instance or any(route.namespaces for route in candidates)
        self.fixed = None if undecided else tuple(route.target for route in candidates)
