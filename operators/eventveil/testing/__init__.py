"""Tests of topologies: events in; counts, dead letters, closings and spends out, with the noise off."""
