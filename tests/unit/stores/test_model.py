"""A model of writers, stores and claims, explored exhaustively for three stores: nothing stable is
lost, and no writer makes anything stable once another has claimed its session. A writer may copy
forward what its oldest segment has, and remove that, before anything of it is stable.

The transitions are the product's own functions. A request is done or not, its answer arrives or
not, and one whose answer was lost may be done again at any later time: so a crash is a writer or a
store that does nothing more, and a partition one that does nothing for a while.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations
from random import Random
from typing import Any, NamedTuple

import pytest

from pillion_sidecar.stores import copies
from pillion_sidecar.stores.copies import (
    NO_REMOVAL,
    Copy,
    Cut,
    Epoch,
    Extent,
    FencedError,
    GapError,
    Piece,
    Removal,
)
from pillion_sidecar.stores.quorum import (
    Membership,
    StoreGroup,
    is_enough,
    latest,
    stable_end,
)

STORES = ("a", "b", "c")
MEMBERSHIP = Membership(groups=(StoreGroup(name="g", members=STORES),))
#: Sets of stores whose answers a claim may go on from.
SETS = [some for count in range(1, 4) for some in combinations(range(3), count)]
#: Long runs, and the first seed of them, to replay one.
WALKS = 150
SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))
#: Writes nothing: its claim shows what a later writer would find.
LAST = Epoch(3, "last")

Log = tuple[Extent, ...]
#: A byte of a log: number and time of its segment, and its place there.
Byte = tuple[int, float, int]
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
    stable: frozenset[Byte] = frozenset()
    stable_end: int = 0
    #: Segments that it may still remove.
    removes: int = 0
    #: Those that it has removed and that the stores have yet; the last of them that is stable.
    removals: tuple[Removal, ...] = ()
    removal: Removal = NO_REMOVAL


class World(NamedTuple):
    copies: tuple[Copy, ...]
    writers: tuple[Writer, ...]
    #: Bytes that stand for all that was pending in a removed segment.
    moved: tuple[tuple[Byte, frozenset[Byte]], ...] = ()


class Lost(AssertionError): ...


@dataclass(frozen=True)
class Rules:
    """What the model takes from the product, so that a test can break one of them."""

    latest: Callable[[Mapping[str, Copy]], str] = latest
    is_enough: Callable[[Membership, Collection[str]], bool] = is_enough
    append: Callable[[Copy, Epoch, Piece, int], Copy] = lambda copy, epoch, piece, base: (
        copies.append(copy, epoch, piece, base=base)
    )
    remove: Callable[[Copy, Epoch, Removal], Copy] = copies.remove
    #: What a removal needs to be stable.
    through: Callable[[int], int] = lambda end: end


def begun(appends: tuple[int, int], removes: tuple[int, int] = (0, 0)) -> World:
    """The first writer has claimed its session everywhere."""
    first, second = (
        Writer(Epoch(at + 1, "writer"), appends[at], removes=removes[at]) for at in range(2)
    )
    copy = copies.claim(Copy(), first.epoch)
    return World((copy,) * 3, (first._replace(known=(copy,) * 3, log=()), second))


def following(world: World, rules: Rules) -> Iterator[World]:
    """Yield each world that one step leads to."""
    for at in range(len(world.writers)):
        yield from _writing(world, at, rules)
        for store in range(len(STORES)):
            yield from _asking(world, at, store, rules)


def _writing(world: World, at: int, rules: Rules) -> Iterator[World]:
    """The writer does something that no store takes part in."""
    writer = world.writers[at]
    if writer.log is None:
        yield from (_changed(world, at, one) for one in _through(writer, rules))
        return
    if writer.left:
        yield _changed(world, at, _appending(writer))
    if writer.removes and writer.log:
        yield _removing(world, at, rules)


def claimed(world: World) -> Iterator[World]:
    """Yield each world in which one more store has heard of the last claim."""
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
        base = copies.end_of(log)
        removals = (Removal(log[0].number, base),) if log else ()
        yield writer._replace(log=log, base=base, removals=removals)


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
    return _longer(writer)._replace(left=writer.left - 1)


def _longer(writer: Writer) -> Writer:
    """A segment is removed only where another is behind it."""
    assert writer.log is not None
    log, created = writer.log, float(writer.epoch.number)
    rolls = writer.removes and len(log) == 1
    if log and log[-1].created == created and not rolls:
        log = (*log[:-1], log[-1]._replace(size=log[-1].size + 1))
    else:
        log = (*log, Extent(log[-1].number + 1 if log else 1, created, 1))
    return writer._replace(log=log)


def _removing(world: World, at: int, rules: Rules) -> World:
    """Its oldest segment goes, after one byte has all that was pending there."""
    writer = _longer(world.writers[at])
    assert writer.log is not None
    oldest, last = writer.log[0], writer.log[-1]
    byte = (last.number, last.created, last.size - 1)
    moved = (*world.moved, (byte, pending(writer.log[:1], world)))
    log = writer.log[1:]
    removal = Removal(log[0].number, rules.through(copies.end_of(log)))
    assert oldest.number < last.number
    writer = writer._replace(
        log=log, removes=writer.removes - 1, removals=(*writer.removals, removal)
    )
    return _changed(world, at, writer)._replace(moved=moved)


def pending(log: Log, world: World) -> frozenset[Byte]:
    """Return what a start on a log finds."""
    moved = dict(world.moved)
    found: set[Byte] = set()
    for one in log:
        for at in range(one.size):
            byte = (one.number, one.created, at)
            found |= moved.get(byte, frozenset((byte,)))
    return frozenset(found)


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
    if changed.renewed and copy.renewed and changed.newest[0] != copy.newest[0]:
        # A crash before the new run was there.
        torn = replace(copy, renewed=None)
        yield done._replace(copies=_put(world.copies, store, torn))
    if changed.written != copy.written:
        # A crash before the epoch was noted; the bytes are there.
        torn = replace(changed, written=copy.written)
        yield done._replace(copies=_put(world.copies, store, torn))
    yield _changed(done, at, _told(writer, store, changed, world))


def _request(writer: Writer, store: int, rules: Rules) -> tuple[int | None, Request | None]:
    """Return the request, if there is one, and where the copy was ever cut."""
    known, log, epoch = writer.known[store], writer.log, writer.epoch
    cut_at = writer.cuts[store]
    if known is None or log is None:
        return cut_at, lambda copy: copies.claim(copy, epoch)
    change = copies.next_change(
        known,
        epoch,
        log,
        stable=writer.stable_end,
        removal=writer.removal,
        meeting=copies.meeting_point([one for one in writer.known if one is not None], epoch),
    )
    if change is None:
        return cut_at, None
    if isinstance(change, Removal):
        return cut_at, lambda copy: rules.remove(copy, epoch, change)
    if isinstance(change, Cut):
        return change.position, lambda copy: copies.cut(copy, epoch, change.position)
    piece = change._replace(size=min(1, change.size))
    through = max((one.through for one in writer.removals), default=0)
    base = writer.base if piece.after else max(writer.base, writer.removal.through, through)
    return cut_at, lambda copy: rules.append(copy, epoch, piece, base)


def _told(writer: Writer, store: int, copy: Copy, world: World) -> Writer:
    """The answer arrives; more may be stable."""
    writer = writer._replace(known=_put(writer.known, store, copy))
    if writer.log is None:
        return writer
    known = {
        name: one
        for name, one in zip(STORES, writer.known, strict=True)
        if one is not None and one.written == writer.epoch
    }
    end = stable_end(MEMBERSHIP, known, STORES)
    if end <= writer.stable_end:
        return writer
    stable = writer.stable | pending(copies.cut_extents(writer.log, end), world)
    gone = [one for one in writer.removals if one.through <= end]
    return writer._replace(
        stable=stable,
        stable_end=end,
        removals=writer.removals[len(gone) :],
        removal=gone[-1] if gone else writer.removal,
    )


def _put(of: tuple[Any, ...], at: int, one: object) -> tuple[Any, ...]:
    return (*of[:at], one, *of[at + 1 :])


def check(world: World, rules: Rules) -> None:
    """What is stable is in the log of each writer whose claim came through, now and later."""
    first, second = world.writers
    if second.log is not None:
        _check_in(first, second.log, world)
    last = tuple(copy if copy.promised == LAST else None for copy in world.copies)
    for log in _logs(last, rules):
        _check_in(first, log, world)
        _check_in(second, log, world)


def _check_in(writer: Writer, log: Log, world: World) -> None:
    lost = writer.stable - pending(log, world)
    if lost:
        raise Lost(f"{lost} of {writer.epoch} is not in {log}")


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
        key = (*sorted(map(self._number, columns)), self._number((alone, world.moved)))
        if key in self._worlds:
            return False
        self._worlds.add(key)
        return True

    def _number(self, part: object) -> int:
        return self._numbers.setdefault(part, len(self._numbers))


def walk(steps: int, rules: Rules, draw: Random) -> Iterator[World]:
    """Yield the worlds of steps by chance in a larger one, where the last claim may come after
    each. Raises Lost."""
    world = begun((4, 3), (4, 3))
    reached: list[tuple[int, int]] = []
    for step in range(steps):
        if not step % 12:
            # Some stores are away for a while, each for one of the writers.
            reached = [(at, store) for at in range(2) for store in range(3) if draw.random() < 0.4]
        if draw.random() < 0.15:
            choices = list(_writing(world, draw.randrange(2), rules))
        else:
            choices = [one for at, store in reached for one in _asking(world, at, store, rules)]
        if choices:
            world = draw.choice(choices)
            promised = tuple(replace(copy, promised=LAST) for copy in world.copies)
            check(world._replace(copies=promised), rules)
            yield world


def explore(appends: tuple[int, int], rules: Rules, removes: tuple[int, int] = (0, 0)) -> int:
    """Return the number of worlds. Raises Lost."""
    seen = Seen()
    seen.add(begun(appends, removes))
    waiting = deque([begun(appends, removes)])
    while waiting:
        world = waiting.popleft()
        for next_world in chain(following(world, rules), claimed(world)):
            if seen.add(next_world):
                check(next_world, rules)
                waiting.append(next_world)
    return len(seen)


def by_length(answers: Mapping[str, Copy]) -> str:
    return max(answers, key=lambda store: answers[store].end)


def unfenced(copy: Copy, epoch: Epoch, piece: Piece, base: int) -> Copy:
    own = replace(copy, promised=epoch)
    return replace(copies.append(own, epoch, piece, base=base), promised=copy.promised)


def taken_at_once(copy: Copy, epoch: Epoch, piece: Piece, base: int) -> Copy:
    return replace(copies.append(copy, epoch, piece, base=base), replaced=())


@pytest.mark.parametrize(
    ("appends", "removes", "worlds"),
    [
        ((1, 1), (0, 0), 30_000),
        pytest.param((2, 1), (0, 0), 150_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param((1, 0), (1, 0), 200_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
def test_nothing_stable_is_lost_whatever_claims_and_returns(
    appends: tuple[int, int], removes: tuple[int, int], worlds: int
) -> None:
    assert explore(appends, Rules(), removes) > worlds


def test_nothing_stable_is_lost_in_long_runs_with_removals() -> None:
    seen: Counter[str] = Counter()
    for part in range(WALKS):
        for world in walk(300, Rules(), Random(SEED + part)):
            for copy in world.copies:
                seen["renewed"] += copy.renewed is not None
                seen["replaced"] += bool(copy.replaced)
                seen["removed"] += copy.through > 0 and not copy.replaced
    assert min(seen["renewed"], seen["replaced"], seen["removed"]) > WALKS, f"seed {SEED}"


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(through=lambda end: 0), id="a part of what is left counts"),
        pytest.param(Rules(append=taken_at_once), id="what is replaced goes at once"),
    ],
)
def test_long_runs_notice_a_broken_removal(rules: Rules) -> None:
    with pytest.raises(Lost):
        list(chain.from_iterable(walk(300, rules, Random(part)) for part in range(500)))


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
