"""Which partitioner keys were written with, found out from the partition that each is really in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eventveil.model.partitioners import PARTITIONERS, RECOGNIZED

#: A partitioner that explains less of what is there is not the one.
_MOST = 0.95
#: Above this share of keys in several partitions nothing has hashed them.
_SCATTERED = 0.05
WORDS: Mapping[str, str] = {
    "murmur2": "the default of the Java client and of aiokafka",
    "crc32": "librdkafka's default, consistent_random",
    "fnv1a": "Sarama's default, and librdkafka's fnv1a",
    "random": "many values are in several partitions, so no hash placed them",
    "unknown": "nearly every value is in one partition, placed by a hash that is not known here",
    "rare": "hardly any value occurs twice here, so it cannot be determined",
    "any": "the topic has one partition, so every partitioner is right",
    "none": "the records have no key",
}
"""What each name means, for people."""


@dataclass(frozen=True, slots=True)
class Written:
    """How distinct ``keys`` got to where they are.

    ``places`` counts the distinct pairs of key and partition, ``fits`` by partitioner those that it explains,
    ``scattered`` the keys in more than one partition, ``repeated`` those that were met more than once.
    """

    keys: int
    places: int
    scattered: int
    fits: Mapping[str, int]
    partitions: int
    repeated: int

    def name(self, stated: str | None = None) -> str:
        """The partitioner: one of WORDS. Where several explain as much, it is ``stated`` if that is one."""
        if not self.keys:
            return "none"
        if self.partitions == 1:
            return "any"
        most = max(self.fits.values())
        if most >= _MOST * self.places:
            best = [name for name, fit in self.fits.items() if fit == most]
            return stated if stated in best and stated is not None else best[0]
        if self.scattered > _SCATTERED * self.keys:
            return "random"
        return "unknown" if self.repeated > _SCATTERED * self.keys else "rare"


def explained(found: Written, stated: str, *, refused: bool = False) -> str:
    """What is to be said of users that are in other partitions than ``stated`` puts them, with the remedy.

    ``refused``: nothing was found out of other events than those that were refused.
    """
    name = found.name(stated)
    if name == stated:
        return f"users are mostly where {stated} puts them; some producers use another partitioner"
    if name in PARTITIONERS:
        how = f"users are where {name} puts them ({WORDS[name]}); the file says {stated}"
        if refused:
            return (
                f"{how}. If all producers use it, name it as the partitioner; if not, correct these producers"
            )
        return f"{how}. Name it as the partitioner"
    how = "users are in partitions that no partitioner of a topology explains"
    if name != "rare":
        how = f"{how} ({name}: {WORDS[name]})"
    return f"{how}. Set repartition: true, or key by the user with murmur2 or crc32"


def written(pairs: Iterable[tuple[bytes, int]], partitions: int) -> Written:
    """Compare keys, none of them empty, with the partitions (0 to ``partitions`` - 1) that they are in."""
    met = Counter(iter(pairs))
    places = met.keys()
    keys = Counter[bytes]()
    for (key, _), number in met.items():
        keys[key] += number
    repeated = sum(number > 1 for number in keys.values())
    partitions_of = Counter(key for key, _ in places)
    fits = {
        name: sum(partition_of(key, partitions) == partition for key, partition in places)
        for name, partition_of in RECOGNIZED.items()
    }
    scattered = sum(number > 1 for number in partitions_of.values())
    return Written(len(partitions_of), len(places), scattered, fits, partitions, repeated)
