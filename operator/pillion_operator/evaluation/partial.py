"""Evaluates anew only what a change of some objects concerns: their subscriptions, with all that
these need. The rest of an evaluation is kept. Pure.

What is said of a subscription, destination, filter or Secret depends on it and on what it needs,
never on what needs it: so the evaluation of a service is the union of those of its subscriptions.
``ServiceEvaluation.basis`` tells where that is not so.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import TypeVar

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.judging import same_places
from pillion_operator.evaluation.namespace import Namespace, Parsed, usable
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    SECRET,
    SUBSCRIPTION,
    References,
    service_of,
)
from pillion_operator.evaluation.service import Basis, ServiceEvaluation
from pillion_operator.store import Change, Key
from pillion_sidecar.config.addresses import Listener

#: Maximum remembered changes of a namespace.
MOST_CHANGES = 5_000
_KINDS = frozenset((SUBSCRIPTION, DESTINATION, FILTER, SECRET))
_IDENTITY = ("uid", "generation", "deletionTimestamp")
#: The states of a subscription that its status keeps.
_ENDS = frozenset(("Disabled", "Removed"))
K = TypeVar("K")
V = TypeVar("V")


class ChangeLog:
    """The latest changes that matter to evaluations, apart from those of services; only of
    namespaces with evaluations."""

    def __init__(self) -> None:
        self._latest = 0
        #: By namespace and object the number of its latest change, in order.
        self._numbers: dict[str, OrderedDict[Key, int]] = {}
        #: By namespace the latest change that is forgotten.
        self._forgotten: dict[str, int] = {}

    def follow(self, change: Change) -> None:
        known = self._numbers.get(change.key.namespace)
        if known is None or change.key.kind not in _KINDS or not _matters(change):
            return
        self._latest += 1
        known.pop(change.key, None)
        known[change.key] = self._latest
        if len(known) > MOST_CHANGES:
            _, self._forgotten[change.key.namespace] = known.popitem(last=False)

    def latest(self, namespace: str) -> int:
        """The number of the latest change, for ``since``."""
        self._numbers.setdefault(namespace, OrderedDict())
        return self._latest

    def since(self, number: int, namespace: str) -> list[Key] | None:
        """The objects that have changed after the change of that number; None: that is not known
        any more."""
        if number < self._forgotten.get(namespace, 0):
            return None
        known = self._numbers.get(namespace) or OrderedDict[Key, int]()
        return list(takewhile(lambda key: known[key] > number, reversed(known)))

    def forget(self, namespace: str) -> None:
        self._numbers.pop(namespace, None)
        self._forgotten.pop(namespace, None)


def _matters(change: Change) -> bool:
    before, after = change.before, change.after
    if change.key.kind == SECRET:
        return any(body is not None and usable(body) for body in (before, after))
    if before is None or after is None:
        return True
    if any(before["metadata"].get(name) != after["metadata"].get(name) for name in _IDENTITY):
        return True
    # Of a status only an end matters.
    return change.key.kind == SUBSCRIPTION and bool({_state(before), _state(after)} & _ENDS)


def _state(subscription: Object) -> object:
    return (subscription.get("status") or {}).get("subscriptionState")


def concerned(
    changed: Iterable[Key],
    before: ServiceEvaluation,
    *,
    service: Key,
    namespace: Namespace,
    references: References,
    most: int,
) -> set[str] | None:
    """The subscriptions of a service, or that were its own at the evaluation ``before``, which
    depend on the ``changed`` objects; None: more than ``most``, or the service itself does."""
    found = set[str]()
    for key in changed:
        if key.kind == SECRET and service in references.naming(key):
            # Its stores need it.
            return None
        for one in _subscriptions_using(key, references):
            if one.name in before.subscriptions or is_of(one.name, service, namespace):
                found.add(one.name)
            if len(found) > most:
                return None
    return found


def _subscriptions_using(key: Key, references: References) -> Iterator[Key]:
    if key.kind == SUBSCRIPTION:
        yield key
    elif key.kind == SECRET:
        for user in references.naming(key):
            if user.kind == DESTINATION:
                yield from references.subscriptions_to(user)
    else:
        yield from references.subscriptions_to(key)


def is_of(subscription: str, service: Key, namespace: Namespace) -> bool:
    body = namespace.body(SUBSCRIPTION, subscription)
    return body is not None and service_of(body) == service.name


def with_part(
    before: ServiceEvaluation, part: ServiceEvaluation, concerned: Collection[str], namespace: str
) -> ServiceEvaluation | None:
    """Return ``before`` with all that ``part``, the evaluation of the ``concerned`` subscriptions,
    says of them and of what they need. None: both cannot be joined."""
    old, new = before.basis, part.basis
    if old is None or new is None or new.service is not old.service or part.lapsed:
        return None
    if part.gateways != before.gateways:
        return None
    if not concerned and len(part.content) == 1 and part.verdict == before.verdict:
        # Only the service itself.
        return before
    return _Union(before, old, concerned, namespace).with_part(part, new)


class _Union:
    def __init__(
        self, before: ServiceEvaluation, basis: Basis, concerned: Collection[str], namespace: str
    ) -> None:
        self._before = before
        self._basis = basis
        self._names = concerned
        self._namespace = namespace
        self._concerned = {Key(SUBSCRIPTION, namespace, name) for name in concerned}
        self._needs = dict(basis.needs)
        self._users = Counter(basis.users)
        self._content = dict(before.content)
        self._left_out = dict(basis.left_out)
        #: What is in no configuration any more, or comes from the part.
        self._replaced = set[Key]()

    def with_part(self, part: ServiceEvaluation, new: Basis) -> ServiceEvaluation:
        before = self._before
        again = {*self._concerned, *part.content}
        lost = [key for user in again for key in self._release(user)]
        for user, keys in new.needs.items():
            self._needs[user] = keys
            self._users.update(keys)
        self._remove([*self._concerned - part.content.keys(), *lost])
        self._take_content(part.content)
        self._replaced.update(part.content)
        named = {key.name for key in self._replaced if key.kind == DESTINATION}
        filters = {key.name for key in self._replaced if key.kind == FILTER}
        refused = named | self._no_longer_left_out(new)
        listeners = _joined(self._basis.listeners, new.listeners, without=named)
        is_moved = listeners != self._basis.listeners
        return replace(
            part,
            subscriptions=_joined(before.subscriptions, part.subscriptions, without=self._names),
            destinations=_joined(before.destinations, part.destinations, without=refused),
            held=_joined(before.held, part.held, without=named),
            last_good=_joined(before.last_good, part.last_good, without=filters),
            unknown_classes=_joined(before.unknown_classes, part.unknown_classes, without=filters),
            same_places=same_places(listeners) if is_moved else before.same_places,
            content=self._content,
            sources=_joined(before.sources, part.sources, without=self._replaced),
            lapsed=self._is_lost(filters),
            basis=self._continued(new.service, listeners),
        )

    def _is_lost(self, filters: Iterable[str]) -> bool:
        """Whether an earlier version of a filter is in force no more."""
        earlier = [name for name in filters if name in self._before.last_good]
        return any(Key(FILTER, self._namespace, name) not in self._content for name in earlier)

    def _continued(self, service: Parsed, listeners: Mapping[str, Listener]) -> Basis:
        return Basis(
            service=service,
            needs=self._needs,
            users=self._users,
            left_out=self._left_out,
            listeners=listeners,
        )

    def _release(self, user: Key) -> tuple[Key, ...]:
        """Forget what a user needs, and return it."""
        keys = self._needs.pop(user, ())
        for key in keys:
            self._users[key] -= 1
        return keys

    def _remove(self, candidates: list[Key]) -> None:
        """Remove those that nothing needs, and what only they needed."""
        while candidates:
            key = candidates.pop()
            if self._users[key] <= 0:
                del self._users[key]
                self._content.pop(key, None)
                self._replaced.add(key)
                candidates += self._release(key)

    def _take_content(self, content: Mapping[Key, str]) -> None:
        are_new = not content.keys() <= self._content.keys()
        self._content.update(content)
        if are_new:
            self._content = {key: self._content[key] for key in sorted(self._content)}

    def _no_longer_left_out(self, new: Basis) -> set[str]:
        """The destinations of which only ``concerned`` subscriptions had a verdict."""
        gone = [self._left_out.pop(key) for key in self._concerned if key in self._left_out]
        others = {key for keys in self._left_out.values() for key in keys} if gone else set()
        self._left_out.update(new.left_out)
        alone = {key for keys in gone for key in keys} - others
        return {key.name for key in alone if key.kind == DESTINATION and key not in self._content}


def _joined(before: Mapping[K, V], part: Mapping[K, V], *, without: Collection[K]) -> Mapping[K, V]:
    gone = [key for key in without if key in before and key not in part]
    if not gone and not part:
        return before
    joined = {**before, **part}
    for key in gone:
        del joined[key]
    return joined
