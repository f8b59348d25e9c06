"""Time during which a destination was not meant to be delivered to."""

#: Pauses remembered; the oldest are merged, which can only lengthen a lifetime.
REMEMBERED_PAUSES = 64


class Pauses:
    """The spells in which a destination was suspended: they count neither against attempts nor
    against lifetime."""

    __slots__ = ("_began", "_spells")

    def __init__(self) -> None:
        self._began: float | None = None
        self._spells: list[tuple[float, float]] = []

    def begin(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def finish(self, now: float) -> None:
        if self._began is None:
            return
        self._spells.append((self._began, now))
        self._began = None
        if len(self._spells) > REMEMBERED_PAUSES:
            (begin, _), (_, end) = self._spells[:2]
            self._spells[:2] = [(begin, end)]

    def since(self, moment: float) -> float:
        """Return how many seconds of finished pauses lie after ``moment``."""
        return sum(end - max(begin, moment) for begin, end in self._spells if end > moment)
