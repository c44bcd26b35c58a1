"""What cannot be read, and why."""

from __future__ import annotations

from eventveil.model.errors import EventveilError


class ReadingError(EventveilError):
    """Releases cannot be read, or not summed up as asked: where, what is wrong, and the remedy."""

    def __init__(self, place: str, what: str, remedy: str) -> None:
        super().__init__(f"{place}: {what}. {remedy}")
        self.place, self.what, self.remedy = place, what, remedy
