"""What was published, what was acknowledged and what arrived, and whether that is as promised.

A history is written down as it happens and judged at the end. It knows nothing of a journal or of
processes: the kill points and the chaos tests keep the same books.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Published:
    """One indication, as its publisher gave it."""

    identifier: str
    #: Counts in the order of acceptance.
    position: int
    #: The destinations that it is for.
    places: frozenset[str]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A listener has taken an indication."""

    identifier: str
    context: str | None
    number: int | None
    #: Within one, nothing goes back: one run of the deliverer, or one of its connections.
    session: Hashable


@dataclass(slots=True)
class _Books:
    """One destination's."""

    arrivals: list[Arrival] = field(default_factory=list)
    discarded: set[str] = field(default_factory=set)


#: Names those whose order at a destination is kept among themselves; None: no order at all.
Line = Callable[[str, Published], str | None]


def one_line(destination: str, published: Published) -> str:
    """``ordering: Destination``."""
    return destination


@dataclass(slots=True)
class History:
    """The books of one run, over all restarts."""

    line: Line = one_line
    #: Destinations whose listener is another one now and then, each with a context of its own.
    moving: frozenset[str] = frozenset()
    published: dict[str, Published] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    #: (destination, identifier) whose settlement is known to be on disk.
    settled: set[tuple[str, str]] = field(default_factory=set)
    restarts: int = 0
    #: How often the journal told that all sequence contexts are new ones.
    renumbered: int = 0
    #: Identifiers whose record was damaged, and that was told. A publisher that was not answered
    #: publishes such a one again: it is a new one then, behind those of its batch that are known.
    taken: set[str] = field(default_factory=set)
    _position: int = 0
    _books: dict[str, _Books] = field(default_factory=lambda: defaultdict(_Books))
    _told: list[str] = field(default_factory=list)

    # ------------------------------------------------------------------ what happens

    def publish(self, identifier: str, places: frozenset[str], group: str | None = None) -> None:
        """An indication was taken, behind all others."""
        assert identifier not in self.published
        self._position += 1
        self.published[identifier] = Published(identifier, self._position, places, group)

    def release(self, identifier: str) -> None:
        """It was held until now: its place is behind all others that are queued."""
        if any(
            one.identifier == identifier for books in self._books.values() for one in books.arrivals
        ):
            self._told.append(f"{identifier} was held again, though it had been released")
        self._position += 1
        self.published[identifier] = replace(self.published[identifier], position=self._position)

    def acknowledge(self, identifier: str) -> None:
        """Its publisher was told that it is safe."""
        self.acknowledged.add(identifier)

    def arrive(
        self,
        destination: str,
        identifier: str,
        context: str | None,
        number: int | None,
        *,
        session: Hashable = None,
    ) -> None:
        """A listener has taken an indication, and answered that it has, or may have.

        ``session``: the run of the deliverer, unless it is given.
        """
        if (destination, identifier) in self.settled:
            self._told.append(f"{destination}: {identifier} came again, though it was settled")
        arrival = Arrival(
            identifier, context, number, self.restarts if session is None else session
        )
        self._books[destination].arrivals.append(arrival)

    def discard(self, destination: str, identifier: str) -> None:
        """Its publisher, or the log, was told that it is discarded there."""
        self._books[destination].discarded.add(identifier)

    def settle(self, destination: str, identifier: str) -> None:
        """That it is delivered or discarded there is on disk: it must not come again."""
        self.settled.add((destination, identifier))

    def restart(self) -> None:
        """The deliverer was started again."""
        self.restarts += 1

    def renumber(self) -> None:
        """The journal told of a loss, so every destination has begun a new context."""
        self.renumbered += 1

    # ------------------------------------------------------------------ the verdict

    def lost_places(self) -> Iterator[tuple[str, str]]:
        """(destination, identifier) of what was acknowledged, and neither arrived there nor was
        discarded."""
        for destination in sorted(set().union(*(one.places for one in self.published.values()))):
            books = self._books[destination]
            known = {one.identifier for one in books.arrivals} | books.discarded
            for identifier in sorted(self.acknowledged - known):
                if destination in self.published[identifier].places:
                    yield destination, identifier

    def arrivals(self) -> int:
        """How many arrivals there were, those of the same indication more than once."""
        return sum(len(books.arrivals) for books in self._books.values())

    def lost(self) -> Iterator[str]:
        """Whatever was acknowledged, or arrived anywhere, and did not arrive everywhere."""
        arrived = {
            destination: {one.identifier for one in books.arrivals}
            for destination, books in self._books.items()
        }
        anywhere = set[str]().union(*arrived.values()) if arrived else set[str]()
        for identifier, published in self.published.items():
            safe = identifier in self.acknowledged
            if not safe and identifier not in anywhere:
                continue
            for destination in sorted(published.places):
                if identifier in arrived.get(destination, ()):
                    continue
                if identifier not in self._books[destination].discarded:
                    why = "was acknowledged" if safe else "arrived elsewhere"
                    yield f"{destination}: {identifier} {why}, and is lost"

    def misordered(self) -> Iterator[str]:
        """Whatever arrived before another that was accepted before it."""
        for destination, books in self._books.items():
            lines: dict[str, _Line] = defaultdict(_Line)
            for arrival in books.arrivals:
                published = self.published.get(arrival.identifier)
                if published is None:
                    yield f"{destination}: {arrival.identifier} was never published"
                    continue
                if destination not in published.places:
                    yield f"{destination}: {arrival.identifier} is not for it"
                name = self._line_of(destination, published)
                # What was told as discarded may come all the same, and late, where the crash came
                # before that was on disk.
                if name is not None and arrival.identifier not in books.discarded:
                    for problem in lines[name].take(published, arrival.session):
                        yield f"{destination}: {problem}"

    def misnumbered(self) -> Iterator[str]:
        """Repeats with another number, numbers that two share or that go back, and gaps that
        nothing explains."""
        for destination, books in self._books.items():
            numbers: dict[str, tuple[str | None, int | None]] = {}
            contexts: dict[str, dict[int, str]] = defaultdict(dict)
            for arrival in books.arrivals:
                given = (arrival.context, arrival.number)
                before = numbers.setdefault(arrival.identifier, given)
                if before[0] != given[0] and (destination in self.moving or self.renumbered):
                    before = numbers[arrival.identifier] = given
                if before != given:
                    yield f"{destination}: {arrival.identifier} was {before} and came as {given}"
                if arrival.context is not None and arrival.number is not None:
                    known = contexts[arrival.context].setdefault(arrival.number, arrival.identifier)
                    if known != arrival.identifier:
                        yield f"{destination}: {given} is {known} and {arrival.identifier}"
            yield from self._judge_contexts(destination, contexts, len(books.discarded))

    def _judge_contexts(
        self, destination: str, contexts: dict[str, dict[int, str]], discarded: int
    ) -> Iterator[str]:
        if len(contexts) > 1 + self.renumbered and destination not in self.moving:
            yield f"{destination}: the context changed: {sorted(contexts)}"
        for context, numbered in contexts.items():
            missing = max(numbered) + 1 - len(numbered)
            if missing > discarded and destination not in self.moving and not self.renumbered:
                yield (
                    f"{destination}: {missing} numbers of {context} never came, and {discarded}"
                    " were discarded"
                )
            greatest: dict[str | None, int] = defaultdict(int)
            for number in sorted(numbered):
                published = self.published.get(numbered[number])
                name = self._line_of(destination, published) if published is not None else None
                if published is None or name is None:
                    continue
                if published.position < greatest[name]:
                    yield (
                        f"{destination}: {numbered[number]} has {number} of {context}, and is"
                        " older than one before it"
                    )
                greatest[name] = published.position

    def _line_of(self, destination: str, published: Published) -> str | None:
        return None if published.identifier in self.taken else self.line(destination, published)

    def repeats(self) -> int:
        """How many arrivals were not the first of their indication there."""
        return sum(
            len(books.arrivals) - len({one.identifier for one in books.arrivals})
            for books in self._books.values()
        )

    def problems(self) -> list[str]:
        """All that is not as promised, once everything that is pending has been delivered."""
        return [*self._told, *self.lost(), *self.misordered(), *self.misnumbered()]


@dataclass(slots=True)
class _Line:
    """Those whose order is kept among themselves, as they come."""

    seen: set[int] = field(default_factory=set)
    greatest: int = -1
    #: By session.
    last: dict[Hashable, int] = field(default_factory=dict)

    def take(self, published: Published, session: Hashable) -> Iterator[str]:
        position = published.position
        if position not in self.seen and position < self.greatest:
            yield f"{published.identifier} was overtaken"
        elif position < self.last.get(session, -1):
            yield f"{published.identifier} came again without a restart"
        self.seen.add(position)
        self.greatest = max(self.greatest, position)
        self.last[session] = position
