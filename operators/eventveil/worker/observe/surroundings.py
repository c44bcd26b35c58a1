"""What a start would refuse of the topics, looked at while a worker runs: settings, which are public."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException

from eventveil.kafka.words import words_of
from eventveil.model.errors import EventveilError
from eventveil.worker.observe.observation import Observation

log = logging.getLogger(__name__)

#: Between two looks; sooner again while something is wrong, so that what was corrected is soon seen.
_SECONDS, _SOON_SECONDS = 10.0, 2.0
#: Failed looks in a row of which the log tells.
_CERTAIN = 2


class Surroundings:
    """Compares the topics with what the topology needs. One broker may know no better: two looks must agree.

    ``inspect`` tells the mistakes that it finds now, and may raise EventveilError or KafkaException.
    """

    def __init__(self, inspect: Callable[[], Sequence[str]], observation: Observation) -> None:
        self._inspect, self._observation = inspect, observation
        self._before: frozenset[str] = frozenset()
        #: Looks in a row that came to nothing, mostly because no broker answered.
        self._unanswered = 0

    def look(self) -> float:
        """Look once; after how many seconds to look again."""
        try:
            found = frozenset(self._inspect())
        except (EventveilError, KafkaException) as error:
            # Nothing is concluded about the topics.
            self._unanswered += 1
            if self._unanswered == _CERTAIN:
                log.warning("topic check not possible, trying again: %s", words_of(error))
            return _SOON_SECONDS
        if self._unanswered >= _CERTAIN:
            log.info("topic check is possible again")
        self._unanswered = 0
        self._tell(sorted(found & self._before))
        self._before = found
        return _SOON_SECONDS if found else _SECONDS

    def _tell(self, stay: Sequence[str]) -> None:
        known = self._observation.mistakes
        for one in stay:
            if one not in known:
                log.warning("topic check failed, worker not ready; a restarted worker would exit: %s", one)
        if known and not stay:
            log.info("topic check passed again")
        self._observation.mistakes = stay
