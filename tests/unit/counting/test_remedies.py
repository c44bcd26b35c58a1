"""What is advised about events that do not count."""

from __future__ import annotations

from eventveil.counting.remedies import REMEDIES
from eventveil.decoding.rules import Reason
from eventveil.topology.counts import COUNTS, SOURCE, TIMELINE
from eventveil.topology.engine import ENGINE_SOURCE

TABLES = [("source", SOURCE), ("source", ENGINE_SOURCE), ("timeline", TIMELINE), ("counts", COUNTS)]


def test_every_reason_has_a_remedy_that_names_settings_of_a_topology() -> None:
    assert set(REMEDIES) == set(Reason)
    known = {f"{section}.{field.name}" for section, table in TABLES for field in table.fields}
    assert {setting for remedy in REMEDIES.values() for setting in remedy.settings} <= known
    assert all(remedy.settings and remedy.text for remedy in REMEDIES.values())
