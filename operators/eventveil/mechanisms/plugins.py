"""Mechanisms from outside this package: a kind ``module:Class``, or a name of the entry-point group.

A topology that names one names code to run. It is looked for where Python looks for installed modules, and
nowhere else: nothing is added to that path, so a module that merely lies beside the topology file is not
found. A plug-in is loaded when a topology names it, or a command its kind; no record of a topic can cause it.

What a plug-in promises is its author's to prove. What decides it is remembered with the state of a stream
(``Plugin.fields``): where the class is, which distribution it came with, and a digest of its source.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from typing import get_args

from eventveil.mechanisms.base import Guarantee, Mechanism
from eventveil.mechanisms.publishing import units_of
from eventveil.model.errors import PluginRefused
from eventveil.model.spelling import nearest
from eventveil.model.topology import Level, MechanismSettings

GROUP = "eventveil.mechanisms"
UNKNOWN = "unknown"
#: Keys of a topology's mechanism that are no options.
RESERVED = frozenset({"kind", "epsilon", "window", "horizon", "adjacency"})

_PROMISED = ("level", "epsilon", "window", "sensitivity", "delta", "renews")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,99}")
_OPTION = re.compile(r"[a-z][a-z0-9_]{0,99}")
_OWN = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A mechanism's class, and where it came from.

    ``target`` is ``module:Class``. ``distribution`` has name and version, if they are known. ``source`` is
    the SHA-256, in hexadecimal, of the source of the class and of the classes it is built on, except those
    of Eventveil and of Python: what these import is not covered, except for the version of the distribution.
    """

    target: str
    mechanism: type[Mechanism]
    distribution: str
    source: str

    @property
    def fields(self) -> dict[str, str]:
        """What the fingerprint of a stream says of it."""
        fields = {"class": self.target, "distribution": self.distribution, "source": self.source}
        if self.mechanism.level != "w-event":
            fields["level"] = self.mechanism.level
        return {f"plugin.{name}": value for name, value in fields.items()}


#: What became of each kind that was asked for: no module is imported twice, nor one that was refused.
_loaded: dict[str, Plugin | PluginRefused] = {}


def installed() -> dict[str, list[EntryPoint]]:
    """The entry points of the group by name; more than one where distributions quarrel about a name."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if _NAME.fullmatch(point.name):
            found.setdefault(point.name, []).append(point)
    return dict(sorted(found.items()))


def loaded(kind: str) -> Plugin | None:
    """The plug-in of a kind that this process has loaded; imports nothing."""
    found = _loaded.get(kind)
    return found if isinstance(found, Plugin) else None


def load(kind: str, built_in: frozenset[str]) -> Plugin:
    """The plug-in of a kind, imported once. Raises PluginRefused."""
    if kind not in _loaded:
        try:
            _loaded[kind] = _load(kind, built_in)
        except PluginRefused as refused:
            _loaded[kind] = refused
    found = _loaded[kind]
    if isinstance(found, PluginRefused):
        raise found
    return found


def _load(kind: str, built_in: frozenset[str]) -> Plugin:
    target, distribution = _resolve(kind, built_in)
    if not _TARGET.fullmatch(target):
        raise PluginRefused(
            f"{target} is not of the form module:Class, such as acme.counts:Threshold; correct it"
        )
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise PluginRefused(
            f"{target} cannot be imported ({type(error).__name__}: {error}); install its distribution into"
            " the environment of this command, modules beside the topology file are not found"
        ) from error
    mechanism = getattr(module, name, None)
    if not inspect.isclass(mechanism) or not issubclass(mechanism, Mechanism):
        raise PluginRefused(
            f"{target} is not a Mechanism; it has to be a class derived from eventveil.Mechanism"
        )
    _check_class(target, mechanism, built_in)
    return Plugin(
        target, mechanism, distribution or _distribution_of(module_name), _digest(target, mechanism)
    )


def _resolve(kind: str, built_in: frozenset[str]) -> tuple[str, str | None]:
    """Where the class of a kind is, and the distribution if an entry point names it."""
    if ":" in kind:
        return kind, None
    points = installed()
    if kind not in points:
        known = sorted({*built_in, *points})
        near = nearest(kind, known)
        raise PluginRefused(
            f"there is no mechanism {kind!r}, only {', '.join(known)}, and module:Class"
            + f"; {near}" * bool(near)
        )
    if len({point.value for point in points[kind]}) > 1:
        several = ", ".join(sorted(_name_of(point) for point in points[kind]))
        raise PluginRefused(f"{kind} is an entry point of several: {several}; write module:Class")
    return points[kind][0].value, _name_of(points[kind][0])


def _name_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else UNKNOWN


def _distribution_of(module: str) -> str:
    names = set(packages_distributions().get(module.partition(".")[0], []))
    if len(names) != 1:
        return UNKNOWN
    name = names.pop()
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return UNKNOWN


def _check_class(target: str, mechanism: type[Mechanism], built_in: frozenset[str]) -> None:
    """Refuse a class that does not declare what ``Mechanism`` asks for."""
    missing = sorted(getattr(mechanism, "__abstractmethods__", ()))
    missing += [name for name in ("kind", "summary", "options") if not hasattr(mechanism, name)]
    if missing:
        raise PluginRefused(f"{target} lacks {', '.join(missing)}; see eventveil.Mechanism")
    lines = (mechanism.kind, mechanism.summary)
    if not all(isinstance(line, str) and line and "\n" not in line for line in lines):
        raise PluginRefused(f"kind and summary of {target} should be one line of text each")
    if mechanism.kind in built_in:
        raise PluginRefused(f"{target} uses the name of a built-in kind, {mechanism.kind!r}; rename it")
    # Local reports need producers and a grid that agree, not a class.
    levels = [level for level in get_args(Level) if level != "local"]
    if mechanism.level not in levels:
        raise PluginRefused(f"level of {target} should be one of {', '.join(levels)}")
    for name in ("options", "raw"):
        if not isinstance(getattr(mechanism, name), frozenset):
            raise PluginRefused(f"{name} of {target} should be a frozenset of names")
    wrong = sorted(name for name in mechanism.options if not _OPTION.fullmatch(str(name)) or name in RESERVED)
    if wrong:
        raise PluginRefused(
            f"{target} cannot have an option {wrong[0]!r}; rename it: lower case, _ and digits"
        )


def _digest(target: str, mechanism: type[Mechanism]) -> str:
    digest = hashlib.sha256()
    for name in sorted({one.__module__ for one in mechanism.__mro__}):
        top = name.partition(".")[0]
        if top == _OWN or top in sys.stdlib_module_names:
            continue
        try:
            with open(inspect.getsourcefile(sys.modules[name]) or "", "rb") as file:
                source = file.read()
        except (OSError, TypeError) as error:
            raise PluginRefused(
                f"the source of {name} cannot be read ({error}), by which a change of {target} would be"
                " noticed; install it with its source"
            ) from error
        digest.update(f"{name}:{len(source)}:".encode() + source)
    return digest.hexdigest()


def check_promise(mechanism: Mechanism, settings: MechanismSettings, sensitivity: int) -> None:
    """Refuse a plug-in whose guarantee is missing, or is not the one that was asked for."""
    place = f"{settings.kind}: its guarantee"
    promise = getattr(mechanism, "guarantee", None)
    if not isinstance(promise, Guarantee):
        raise PluginRefused(f"{place} is missing; its constructor has to set guarantee, a Guarantee")
    # Units of a stream with a delta are added up as those of Gaussian noise: without it too little is summed.
    # And a horizon that renews costs epsilon again and again: sums know it by the option alone.
    renews = settings.options.get("on_horizon") == "renew"
    asked = (mechanism.level, settings.epsilon, settings.window, sensitivity, settings.delta, renews)
    for name, one in zip(_PROMISED, asked, strict=True):
        if one != (other := getattr(promise, name)):
            raise PluginRefused(f"{place} says {name} {other}, where {one} was asked for; correct the class")
    if getattr(mechanism, "units", None) != units_of(settings.window):
        raise PluginRefused(
            f"{place} needs 2 * window * 2**20 units, {units_of(settings.window)}; correct the class"
        )
