"""The destinations that get dead letters: whether they can, and resources without those that
cannot. Pure. A wrong deadLetterRef removes nothing from a configuration, because deliverers discard
the queue of a removed destination."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.evaluation.namespace import Namespace, Parsed
from pillion_operator.evaluation.references import (
    DESTINATION,
    GATEWAY_REF,
    HAND_OVER_TO,
    REPLAY,
    USERS,
    References,
    dead_letter_named,
    destination_ref,
    gateway_named,
    is_gateway,
)
from pillion_operator.evaluation.relaying import relays
from pillion_operator.evaluation.replaying import is_under_way
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict
from pillion_operator.names import DEAD_LETTERS_ANNOTATION
from pillion_operator.store import Key, identity_of
from pillion_sidecar.config.dead_letters import FIELD
from pillion_sidecar.config.parsing import Resource
from pillion_sidecar.config.rendered import item_text
from pillion_sidecar.config.schema.destination import RemovalPolicy
from pillion_sidecar.fields import JSONObject

NOT_FOUND = "DeadLetterNotFound"
BEING_DELETED = "DeadLetterBeingDeleted"
NOT_ACCEPTED = "DeadLetterNotAccepted"
NOT_USABLE = "DeadLetterNotUsable"
#: removalPolicy DeadLetter has nowhere to go.
MISSING = "DeadLetterMissing"
_MARK = json.dumps(DEAD_LETTERS_ANNOTATION)
_OF_DESTINATION = "Until then it does not apply."
_OF_SERVICE = "Until then deliverers keep their configuration."
NO_DEAD_LETTER = Verdict(
    False,
    MISSING,
    "spec.removalPolicy is DeadLetter, and no usable deadLetterRef applies, of this destination or "
    "of its service. Name a destination there, or choose Discard or Drain. Until then it is "
    "Discard.",
)


def dead_letter_verdict(body: Object, *, namespace: Namespace) -> Verdict:
    """Return whether the destination in the deadLetterRef of a destination or service can get dead
    letters; accepted without one."""
    name = dead_letter_named(body)
    if not name:
        return ACCEPTED
    if body["kind"] == DESTINATION and name == body["metadata"]["name"]:
        message = "spec.deadLetterRef names this destination itself. Name another, or remove it."
        return Verdict(False, NOT_USABLE, message)
    until = _OF_DESTINATION if body["kind"] == DESTINATION else _OF_SERVICE
    named = f"spec.deadLetterRef names {DESTINATION} {name}, which"
    found = namespace.body(DESTINATION, name)
    if found is None:
        message = f"{named} does not exist in this namespace. Create it, or name another. {until}"
        return Verdict(False, NOT_FOUND, message)
    if being_deleted(found):
        message = f"{named} is being deleted. Name another, or recreate it. {until}"
        return Verdict(False, BEING_DELETED, message)
    parsed = namespace.parsed(DESTINATION, name)
    if parsed is None or parsed.problems:
        return Verdict(False, NOT_ACCEPTED, f"{named} is not accepted: see its conditions. {until}")
    if further := dead_letter_named(found):
        message = (
            f"{named} has a deadLetterRef itself, to {further}, and dead letters go no further. "
            f"Remove that, or name another. {until}"
        )
        return Verdict(False, NOT_USABLE, message)
    return ACCEPTED


def letters_to(
    gateway: Key,
    *,
    namespace: Namespace,
    references: References,
    rendered: Mapping[Key, Collection[str]],
) -> set[str]:
    """The destinations of dead letters that the deliverers of other services relay, or hand over,
    to a gateway; also those being deleted. ``rendered`` are those in the configuration of each
    service, which may keep one that nothing names any more."""
    found = set()
    for guest in references.guests(gateway):
        service = namespace.body(guest.kind, guest.name)
        if service is None or is_gateway(service):
            continue
        all_of_them = gateway_named(service, HAND_OVER_TO) == gateway.name
        relayed = gateway_named(service, GATEWAY_REF) == gateway.name
        wanted = set(rendered.get(guest, ()))
        for loser in _losers(guest, service, namespace=namespace, references=references):
            verdict = dead_letter_verdict(loser, namespace=namespace)
            if verdict.accepted or verdict.reason == BEING_DELETED:
                wanted.add(dead_letter_named(loser))
        found |= {
            name
            for name in wanted
            if all_of_them or (relayed and relays(service, namespace.body(DESTINATION, name)))
        }
    return found - {""}


def _losers(
    service: Key, body: Object, *, namespace: Namespace, references: References
) -> Iterator[Object]:
    """A service, and the destinations of its subscriptions and replays."""
    yield body
    for user in references.naming(service):
        found = namespace.body(user.kind, user.name) if user.kind in USERS else None
        if found is None or (user.kind == REPLAY and not is_under_way(found)):
            continue
        destination = namespace.body(DESTINATION, destination_ref(found))
        if destination is not None:
            yield destination


def without_dead_letter(parsed: Parsed, *, keeps_policy: bool) -> Parsed:
    """Return a destination as rendered without its deadLetterRef; ``keeps_policy``: with
    removalPolicy DeadLetter, since another applies."""
    assert parsed.resource is not None
    document = json.loads(parsed.item)
    return replace(
        parsed,
        resource=_stripped(parsed.resource, keeps_policy=keeps_policy),
        item=item_text({**document, "spec": _without(document["spec"], keeps_policy)}),
    )


def resolvable(resource: Resource, names: Collection[str], *, has_default: bool) -> Resource:
    """Return a resource as it is judged beside the destinations ``names``: without a reference to
    another one. ``has_default``: the service has a deadLetterRef."""
    if resource.sound(FIELD):
        is_known = resource.spec[FIELD]["name"] in names
        return resource if is_known else _stripped(resource, keeps_policy=has_default)
    is_without = resource.spec.get("removalPolicy") != RemovalPolicy.DEAD_LETTER
    if FIELD in resource.spec or has_default or is_without:
        return resource
    return _stripped(resource, keeps_policy=False)


def _stripped(resource: Resource, *, keeps_policy: bool) -> Resource:
    return replace(resource, spec=_without(resource.spec, keeps_policy))


def _without(spec: JSONObject, keeps_policy: bool) -> JSONObject:
    kept = {name: value for name, value in spec.items() if name != FIELD}
    if not keeps_policy and kept.get("removalPolicy") == RemovalPolicy.DEAD_LETTER:
        kept["removalPolicy"] = RemovalPolicy.DISCARD.value
    return kept


class DeadLetterChoice:
    """Adds to a service's configuration the destinations that get dead letters."""

    def __init__(
        self, service: Object, *, namespace: Namespace, choose: Callable[[Key], None]
    ) -> None:
        """``service`` has a usable deadLetterRef, or none. ``choose`` adds a destination, once."""
        self._namespace = namespace
        self._choose = choose
        self._default = self._named_by(service)
        #: By the destination that names it.
        self._own: dict[Key, Key] = {}
        self._wrong: dict[Key, Verdict] = {}
        self._is_linked = False
        #: Those that are needed whoever names them: of the configuration that is in force, and of
        #: services whose deliverers relay or hand over to this one.
        self._kept: set[Key] = set()

    def _named_by(self, body: Object) -> Key | None:
        name = dead_letter_named(body)
        return Key(DESTINATION, self._namespace.name, name) if name else None

    def begin(self, rendered: Mapping[Key, str]) -> None:
        """Add the service's, and those of the ``rendered`` configuration: the last destination that
        names one may be the one that is removed, and leaves its queue to it."""
        if self._default is not None:
            self._choose(self._default)
        for key, item in rendered.items():
            if key.kind == DESTINATION and _MARK in item and self._stays(key, item):
                self.keep(key)

    @property
    def among_destinations(self) -> bool:
        """Whether any but the service's own deadLetterRef matters."""
        return self._is_linked or not self._kept <= {self._default}

    def keep(self, destination: Key) -> None:
        self._kept.add(destination)
        self._choose(destination)

    def _stays(self, key: Key, item: str) -> bool:
        """Until it is deleted itself."""
        body, parsed = (
            self._namespace.body(key.kind, key.name),
            self._namespace.parsed(key.kind, key.name),
        )
        if body is None or being_deleted(body) or parsed is None or parsed.problems:
            return False
        metadata = json.loads(item)["metadata"]
        is_marked = DEAD_LETTERS_ANNOTATION in metadata.get("annotations", {})
        return is_marked and metadata.get("uid") == identity_of(body).get("uid")

    def follow(self, destination: Key) -> None:
        """Add the one that gets the dead letters of a chosen destination."""
        body = self._namespace.body(DESTINATION, destination.name)
        target = None if body is None else self._named_by(body)
        if body is None or target is None:
            return
        self._is_linked = True
        verdict = dead_letter_verdict(body, namespace=self._namespace)
        if verdict.accepted:
            self._own[destination] = target
            self._choose(target)
        else:
            self._wrong[destination] = verdict

    def leave_out_unusable(self, chosen: dict[Key, Parsed]) -> None:
        """Replace destinations whose deadLetterRef names none of the chosen ones, and mark those
        that get dead letters."""
        for key, target in [*self._own.items()]:
            if target not in chosen:
                del self._own[key]
                self._wrong[key] = _taken_out(target, _OF_DESTINATION)
        getting = {*self._own.values(), self._default}
        for key, parsed in [*chosen.items()]:
            if key.kind != DESTINATION or parsed.resource is None:
                continue
            has_default = self._default in chosen and key not in getting
            policy = parsed.resource.spec.get("removalPolicy")
            lacks = key not in self._own and not has_default
            if lacks and policy == RemovalPolicy.DEAD_LETTER:
                self._wrong.setdefault(key, NO_DEAD_LETTER)
            if key in self._wrong:
                chosen[key] = without_dead_letter(parsed, keeps_policy=has_default)
        for key in self.needed(chosen) & chosen.keys():
            chosen[key] = _marked(chosen[key])

    def needed(self, needed: Collection[Key]) -> set[Key]:
        """The destinations that get dead letters of the ``needed`` objects."""
        found = {target for one, target in self._own.items() if one in needed}
        found |= self._kept
        return found if self._default is None else {*found, self._default}

    def verdict(self, chosen: Collection[Key]) -> Verdict:
        """The verdict on the service: whether its own deadLetterRef is there."""
        if self._default is None or self._default in chosen:
            return ACCEPTED
        return _taken_out(self._default, _OF_SERVICE)

    def wrong(self, chosen: Collection[Key]) -> dict[str, Verdict]:
        """Verdicts on destinations whose dead letters go nowhere."""
        return {key.name: verdict for key, verdict in self._wrong.items() if key in chosen}


def _marked(parsed: Parsed) -> Parsed:
    document = json.loads(parsed.item)
    metadata = document["metadata"]
    annotations = {**metadata.get("annotations", {}), DEAD_LETTERS_ANNOTATION: "true"}
    item = item_text({**document, "metadata": {**metadata, "annotations": annotations}})
    return replace(parsed, item=item)


def marked_in(objects: Iterable[Object], *, namespace: str) -> dict[Key, str]:
    """The destinations that get dead letters, of the objects of a rendered configuration."""
    return {
        Key(DESTINATION, namespace, one["metadata"]["name"]): text
        for one in objects
        if one.get("kind") == DESTINATION and _MARK in (text := item_text(one))
    }


def _taken_out(destination: Key, until: str) -> Verdict:
    message = (
        f"spec.deadLetterRef names {DESTINATION} {destination.name}, which is not accepted: see "
        f"its conditions. {until}"
    )
    return Verdict(False, NOT_ACCEPTED, message)
