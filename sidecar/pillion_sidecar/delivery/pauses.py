"""Time during which a destination was not meant to be delivered to."""

#: Pauses remembered; the oldest are merged, which can only lengthen a lifetime.
REMEMBERED_PAUSES = 64


class Pauses:
    """The spells in which a destination was suspended: they count neither against attempts nor
    against lifetime."""

    __slots__ = ("began", "spells")

    def __init__(self) -> None:
        #: When the spell that lasts began; None without one. And those that are over.
        self.began: float | None = None
        self.spells: list[tuple[float, float]] = []

    def begin(self, now: float) -> None:
        if self.began is None:
            self.began = now

    def finish(self, now: float) -> None:
        if self.began is None:
            return
        self.spells.append((self.began, now))
        self.began = None
        if len(self.spells) > REMEMBERED_PAUSES:
            (begin, _), (_, end) = self.spells[:2]
            self.spells[:2] = [(begin, end)]

    def since(self, moment: float) -> float:
        """Return how many seconds of finished pauses lie after ``moment``."""
        if not self.spells:
            return 0.0
        return sum(end - max(begin, moment) for begin, end in self.spells if end > moment)
