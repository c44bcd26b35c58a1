"""What the log says of owners that ended: partitions with the same reason together, and of an outage once.

An outage is a time in which no broker lets this worker in. Every busy owner then ends with an error of
its own client, which does not show the outage. Owners that have nothing to do for an hour do not
notice it; that no fetch is answered shows it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from math import inf

from confluent_kafka import KafkaException

from eventveil.kafka.changelog import TransactionFailed
from eventveil.kafka.words import words_of
from eventveil.model.errors import EventveilError, Unsettled
from eventveil.model.records import TopicPartition
from eventveil.worker.observe.observation import SILENT_SECONDS, Observation
from eventveil.worker.threads import Blocking

log = logging.getLogger(__name__)

#: How long to collect other partitions with the same reason.
_GATHER_SECONDS = 0.2
#: How long a repeated reason is shortened, and an outage not repeated.
_SHORT_SECONDS, _OUTAGE_SECONDS = 10.0, 60.0
#: How often one asks why fetches are not answered.
_ASK_SECONDS = 10.0
_SILENT = (
    "%s: no fetch has been answered for %.0f s or more, although a broker accepts this worker. There may be"
    " no leader: `kafka-topics.sh --bootstrap-server ... --describe --unavailable-partitions`"
)


class Told:
    """Logs why partitions are taken over again.

    ``obstacle`` says what keeps this process from all brokers, or None, or raises it; it may block for
    seconds, and ``diagnosing`` runs it in a thread. ``observation`` is told of an outage.
    """

    def __init__(
        self, obstacle: Callable[[], EventveilError | None], diagnosing: Blocking, observation: Observation
    ) -> None:
        self._obstacle, self._diagnosing, self._observation = obstacle, diagnosing, observation
        #: The partitions by topic and reason, each with what is said of the reason in full.
        self._gathered: dict[tuple[str, str], tuple[str, set[int]]] = {}
        self._telling: asyncio.Task[None] | None = None
        #: Whether a failure of the cluster is among those gathered.
        self._of_cluster = False
        #: When a reason was last told in full, by the monotonic clock.
        self._known: dict[tuple[str, str], float] = {}
        #: Since when no broker has let this worker in, and when that was last told.
        self._away: float | None = None
        self._away_told = 0.0
        #: Partitions without answers to fetches, of which the log has told, and when some were last seen.
        self._silent: frozenset[TopicPartition] = frozenset()
        self._silent_told: frozenset[TopicPartition] = frozenset()
        self._silent_at: float | None = None
        self._ask_again = -inf

    def stopped(self, tp: TopicPartition, error: Exception) -> None:
        """A partition's owner ended with ``error``, and it is taken over again. Returns at once."""
        _, partitions = self._gathered.setdefault((tp.topic, _reason(error)), (_in_full(error), set()))
        partitions.add(tp.partition)
        self._of_cluster |= isinstance(error, (KafkaException, TransactionFailed))
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    def look(self, silent: Collection[TopicPartition]) -> None:
        """Fetches of these owned partitions have had no answer for long. Called often; returns at once."""
        now, self._silent = time.monotonic(), frozenset(silent)
        if self._telling is not None:
            return
        if silent:
            self._silent_at = now
            if now >= self._ask_again:
                self._ask_again, self._of_cluster = now + _ASK_SECONDS, True
                self._telling = asyncio.create_task(self._tell())
        elif self._silent_at is not None and self._observation.heard > self._silent_at:
            # Not where its owners have ended meanwhile: then nothing is fetched.
            self._silent_at = None
            if self._silent_told:
                log.info("fetches are answered again")
            self._silent_told = frozenset()
            self.taken_over()

    def taken_over(self) -> None:
        """A partition was taken over, or fetches are answered, so brokers answer."""
        if self._away is not None:
            log.info(
                "brokers answer again after %.0f s; overdue timestamps are released now; events that"
                " producers held back do not count if they are appended after their deadline"
                " (`eventveil dead TOPOLOGY` shows them)",
                time.monotonic() - self._away,
            )
            self._away = self._observation.outage = None

    async def _tell(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        asked, self._of_cluster = self._of_cluster, False
        obstacle = await self._diagnosed() if asked else None
        gathered, self._gathered, self._telling = self._gathered, {}, None
        if obstacle is not None:
            self._tell_outage(obstacle)
            return
        if asked:
            self._observation.outage = None
            self._tell_silence()
        for (topic, reason), (text, partitions) in gathered.items():
            self._tell_reason(topic, reason, text, partitions)

    async def _diagnosed(self) -> EventveilError | None:
        try:
            found: EventveilError | None = await self._diagnosing(self._obstacle)
        except EventveilError as error:
            # Certificates that cannot be read, perhaps because they are being renewed.
            return error
        return found

    def _tell_outage(self, obstacle: EventveilError) -> None:
        now, self._observation.outage = time.monotonic(), str(obstacle)
        if self._away is None or now >= self._away_told + _OUTAGE_SECONDS:
            self._away_told = now
            log.warning("no broker answers, so nothing is counted or released; retrying: %s", obstacle)
        if self._away is None:
            self._away = now if self._silent_at is None else min(now, self._observation.heard)

    def _tell_silence(self) -> None:
        by_topic: dict[str, set[int]] = {}
        for topic, partition in self._silent - self._silent_told:
            by_topic.setdefault(topic, set()).add(partition)
        for topic, partitions in sorted(by_topic.items()):
            log.warning(_SILENT, f"{topic}, {_listed(partitions)}", SILENT_SECONDS)
        self._silent_told |= self._silent

    def _tell_reason(self, topic: str, reason: str, text: str, partitions: set[int]) -> None:
        where, now = f"{topic}, {_listed(partitions)}", time.monotonic()
        if now < self._known.get((topic, reason), -inf) + _SHORT_SECONDS:
            log.info("stopped processing %s for the same reason; retrying", where)
            return
        self._known = {key: at for key, at in self._known.items() if now < at + _SHORT_SECONDS}
        self._known[topic, reason] = now
        log.warning("stopped processing %s; retrying: %s", where, text)


def _reason(error: Exception) -> str:
    """What the errors of several partitions have in common."""
    return error.what if isinstance(error, (TransactionFailed, Unsettled)) else words_of(error)


def _in_full(error: Exception) -> str:
    return str(error) if isinstance(error, Unsettled) else _reason(error)


def _listed(partitions: Collection[int]) -> str:
    """Such as "partitions 0-3, 7"."""
    runs: list[list[int]] = []
    for one in sorted(partitions):
        if runs and one == runs[-1][-1] + 1:
            runs[-1][1:] = [one]
        else:
            runs.append([one])
    text = ", ".join("-".join(map(str, run)) for run in runs)
    return f"partition {text}" if len(partitions) == 1 else f"partitions {text}"
