"""A model of writers, stores and claims, explored exhaustively for three stores: nothing stable is
lost, and no writer makes anything stable once another has claimed its session.

The transitions are the product's own functions. A request is done or not, its answer arrives or
not, and one whose answer was lost may be done again at any later time: so a crash is a writer or a
store that does nothing more, and a partition one that does nothing for a while.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from pillion_sidecar.stores import copies
from pillion_sidecar.stores.copies import Copy, Cut, Epoch, Extent, FencedError, GapError, Piece
from pillion_sidecar.stores.quorum import (
    Membership,
    StoreGroup,
    is_enough,
    latest,
    stable_position,
)

STORES = ("a", "b", "c")
MEMBERSHIP = Membership(groups=(StoreGroup(name="g", members=STORES),))
#: Sets of stores whose answers a claim may go on from.
SETS = [some for count in range(1, 4) for some in combinations(range(3), count)]
#: Writes nothing: its claim shows what a later writer would find.
LAST = Epoch(3, "last")

Log = tuple[Extent, ...]
#: A request, which changes a copy or is refused.
Request = Callable[[Copy], Copy]


class Writer(NamedTuple):
    epoch: Epoch
    #: Bytes that it may still append.
    left: int
    #: By store: the last copy that it was told of.
    known: tuple[Copy | None, ...] = (None, None, None)
    #: By store: where it has asked to cut the copy.
    cuts: tuple[int | None, ...] = (None, None, None)
    #: None until the claim is through.
    log: Log | None = None
    base: int = 0
    #: What it has announced as stable.
    stable: Log = ()


class World(NamedTuple):
    copies: tuple[Copy, ...]
    writers: tuple[Writer, ...]


class Lost(AssertionError): ...


@dataclass(frozen=True)
class Rules:
    """What the model takes from the product, so that a test can break one of them."""

    latest: Callable[[Mapping[str, Copy]], str] = latest
    is_enough: Callable[[Membership, Collection[str]], bool] = is_enough
    append: Callable[[Copy, Epoch, Piece, int], Copy] = lambda copy, epoch, piece, base: (
        copies.append(copy, epoch, piece, base=base)
    )


def begun(appends: tuple[int, int]) -> World:
    """The first writer has claimed its session everywhere."""
    first, second = (
        Writer(Epoch(number, "writer"), left) for number, left in enumerate(appends, start=1)
    )
    copy = copies.claim(Copy(), first.epoch)
    return World((copy,) * 3, (first._replace(known=(copy,) * 3, log=()), second))


def following(world: World, rules: Rules) -> Iterator[World]:
    """Yield each world that one step leads to."""
    for at, writer in enumerate(world.writers):
        if writer.log is None:
            yield from (_changed(world, at, one) for one in _through(writer, rules))
        elif writer.left:
            yield _changed(world, at, _appending(writer))
        for store in range(len(STORES)):
            yield from _asking(world, at, store, rules)
    for store, copy in enumerate(world.copies):
        # Nobody changes that copy any more, so whether the answer arrives is all the same.
        if copy.promised < LAST:
            promised = copies.claim(copy, LAST)
            yield world._replace(copies=_put(world.copies, store, promised))


def _changed(world: World, at: int, writer: Writer) -> World:
    return world._replace(writers=(*world.writers[:at], writer, *world.writers[at + 1 :]))


def _through(writer: Writer, rules: Rules) -> Iterator[Writer]:
    """The claim has enough answers."""
    for log in _logs(writer.known, rules):
        yield writer._replace(log=log, base=copies.end_of(log))


def _logs(known: tuple[Copy | None, ...], rules: Rules) -> Iterator[Log]:
    """Yield each log that a claim with these answers may go on from."""
    for some in SETS:
        answers = {STORES[at]: copy for at in some if (copy := known[at]) is not None}
        if len(answers) == len(some) and rules.is_enough(MEMBERSHIP, answers):
            # In either order: equal copies may differ in their names alone.
            yield answers[rules.latest(answers)].extents
            yield answers[rules.latest(dict(reversed(answers.items())))].extents


def _appending(writer: Writer) -> Writer:
    """One more byte; a writer begins with a segment of its own."""
    assert writer.log is not None
    log, created = writer.log, float(writer.epoch.number)
    if log and log[-1].created == created:
        log = (*log[:-1], log[-1]._replace(size=log[-1].size + 1))
    else:
        log = (*log, Extent(log[-1].number + 1 if log else 1, created, 1))
    return writer._replace(log=log, left=writer.left - 1)


def _asking(world: World, at: int, store: int, rules: Rules) -> Iterator[World]:
    """The writer asks a store, with what it knows of it."""
    writer, copy = world.writers[at], world.copies[store]
    late = writer.cuts[store]
    if late is not None and copy.promised == writer.epoch > copy.written:
        # The first of two equal requests arrives after the second, and what came behind it.
        yield world._replace(
            copies=_put(world.copies, store, copies.cut(copy, writer.epoch, min(late, copy.end)))
        )
    cut_at, request = _request(writer, store, rules)
    if request is None:
        return
    writer = writer._replace(cuts=_put(writer.cuts, store, cut_at))
    try:
        changed = request(copy)
    except FencedError:
        return
    except GapError:
        # It asks where the copy ends.
        yield _changed(world, at, writer._replace(known=_put(writer.known, store, None)))
        return
    done = _changed(world, at, writer)._replace(copies=_put(world.copies, store, changed))
    yield done
    if changed.written != copy.written:
        # A crash before the epoch was noted; the bytes are there.
        torn = replace(changed, written=copy.written)
        yield done._replace(copies=_put(world.copies, store, torn))
    yield _changed(done, at, _told(writer, store, changed))


def _request(writer: Writer, store: int, rules: Rules) -> tuple[int | None, Request | None]:
    """Return the request, if there is one, and where the copy was ever cut."""
    known, log, epoch = writer.known[store], writer.log, writer.epoch
    cut_at = writer.cuts[store]
    if known is None or log is None:
        return cut_at, lambda copy: copies.claim(copy, epoch)
    change = copies.next_change(known, epoch, log)
    if change is None:
        return cut_at, None
    if isinstance(change, Cut):
        return change.position, lambda copy: copies.cut(copy, epoch, change.position)
    piece = change._replace(size=min(1, change.size))
    return cut_at, lambda copy: rules.append(copy, epoch, piece, writer.base)


def _told(writer: Writer, store: int, copy: Copy) -> Writer:
    """The answer arrives; more may be stable."""
    writer = writer._replace(known=_put(writer.known, store, copy))
    if writer.log is None:
        return writer
    positions = {
        name: one.end
        for name, one in zip(STORES, writer.known, strict=True)
        if one is not None and one.written == writer.epoch
    }
    stable = copies.cut_extents(writer.log, stable_position(MEMBERSHIP, positions, STORES))
    if copies.end_of(stable) > copies.end_of(writer.stable):
        return writer._replace(stable=stable)
    return writer


def _put(of: tuple[Any, ...], at: int, one: object) -> tuple[Any, ...]:
    return (*of[:at], one, *of[at + 1 :])


def check(world: World, rules: Rules) -> None:
    """What is stable is in the log of each writer whose claim came through, now and later."""
    first, second = world.writers
    if second.log is not None:
        _check_in(first, second.log)
    last = tuple(copy if copy.promised == LAST else None for copy in world.copies)
    for log in _logs(last, rules):
        _check_in(first, log)
        _check_in(second, log)


def _check_in(writer: Writer, log: Log) -> None:
    if copies.common_end(writer.stable, log) < copies.end_of(writer.stable):
        raise Lost(f"{writer.stable} of {writer.epoch} is not in {log}")


class Seen:
    """The worlds that were explored, of which those that differ in the stores' names are one."""

    def __init__(self) -> None:
        self._worlds: set[object] = set()
        self._numbers: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._worlds)

    def add(self, world: World) -> bool:
        """Return whether it is new."""
        first, second = world.writers
        columns = zip(world.copies, first.known, second.known, first.cuts, second.cuts, strict=True)
        alone = tuple(writer._replace(known=(), cuts=()) for writer in world.writers)
        key = (*sorted(map(self._number, columns)), self._number(alone))
        if key in self._worlds:
            return False
        self._worlds.add(key)
        return True

    def _number(self, part: object) -> int:
        return self._numbers.setdefault(part, len(self._numbers))


def explore(appends: tuple[int, int], rules: Rules) -> int:
    """Return the number of worlds. Raises Lost."""
    seen = Seen()
    seen.add(begun(appends))
    waiting = deque([begun(appends)])
    while waiting:
        for world in following(waiting.popleft(), rules):
            if seen.add(world):
                check(world, rules)
                waiting.append(world)
    return len(seen)


def by_length(answers: Mapping[str, Copy]) -> str:
    return max(answers, key=lambda store: answers[store].end)


def unfenced(copy: Copy, epoch: Epoch, piece: Piece, base: int) -> Copy:
    own = replace(copy, promised=epoch)
    return replace(copies.append(own, epoch, piece, base=base), promised=copy.promised)


@pytest.mark.parametrize(
    ("appends", "worlds"),
    [
        ((1, 1), 30_000),
        pytest.param((2, 1), 150_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
def test_nothing_stable_is_lost_whatever_claims_and_returns(
    appends: tuple[int, int], worlds: int
) -> None:
    assert explore(appends, Rules()) > worlds


@pytest.mark.parametrize(
    ("appends", "rules"),
    [
        pytest.param((1, 1), Rules(latest=by_length), id="the longest copy is taken"),
        pytest.param(
            (2, 0),
            Rules(
                append=lambda copy, epoch, piece, base: copies.append(copy, epoch, piece, base=0)
            ),
            id="a part of the base counts",
        ),
        pytest.param(
            (1, 0), Rules(is_enough=lambda membership, answered: bool(answered)), id="one answers"
        ),
        pytest.param((1, 0), Rules(append=unfenced), id="stores go on taking from the old writer"),
    ],
)
def test_the_model_notices_a_broken_rule(appends: tuple[int, int], rules: Rules) -> None:
    with pytest.raises(Lost):
        explore(appends, rules)
