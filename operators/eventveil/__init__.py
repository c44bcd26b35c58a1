"""Eventveil: differentially private counts of user events, released from Kafka once per timestamp.

What plug-ins import is here. ``eventveil.read`` is for users of releases, ``eventveil.local`` for producers
of local reports. A name is loaded on first use, so that ``import eventveil`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventveil import local, read
    from eventveil.mechanisms.base import Counts, Guarantee, Mechanism, Release
    from eventveil.mechanisms.contract import examine
    from eventveil.mechanisms.contract.subject import Subject
    from eventveil.mechanisms.event_level import EventLevelMechanism
    from eventveil.mechanisms.horizon import HorizonMechanism
    from eventveil.mechanisms.w_event import WEventMechanism
    from eventveil.model.errors import EventveilError, UnfitSetting
    from eventveil.model.topology import MechanismSettings, Option
    from eventveil.privacy.ledger import Spend
    from eventveil.privacy.noise import NoiseSource

__version__ = "0.3.0.dev0"

_HOMES = {
    "eventveil.model.errors": ("EventveilError", "UnfitSetting"),
    "eventveil.mechanisms.base": ("Counts", "Guarantee", "Mechanism", "Release"),
    "eventveil.mechanisms.contract": ("examine",),
    "eventveil.mechanisms.contract.subject": ("Subject",),
    "eventveil.mechanisms.event_level": ("EventLevelMechanism",),
    "eventveil.mechanisms.horizon": ("HorizonMechanism",),
    "eventveil.mechanisms.w_event": ("WEventMechanism",),
    "eventveil.privacy.ledger": ("Spend",),
    "eventveil.privacy.noise": ("NoiseSource",),
    "eventveil.model.topology": ("MechanismSettings", "Option"),
}
_MODULES = ("local", "read")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Counts",
    "EventLevelMechanism",
    "EventveilError",
    "Guarantee",
    "HorizonMechanism",
    "Mechanism",
    "MechanismSettings",
    "NoiseSource",
    "Option",
    "Release",
    "Spend",
    "Subject",
    "UnfitSetting",
    "WEventMechanism",
    "__version__",
    "examine",
    "local",
    "read",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"eventveil.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
