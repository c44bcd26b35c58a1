"""Topology files: what Eventveil reads, counts, protects and writes, validated before anything runs."""

from eventveil.topology.identity import columns_digest, fingerprint, fingerprint_fields
from eventveil.topology.loading import load, load_with_defaults
from eventveil.topology.problems import Problem, TopologyInvalid
from eventveil.topology.schema import json_schema, json_schema_text
from eventveil.topology.shapes import Default

__all__ = [
    "Default",
    "Problem",
    "TopologyInvalid",
    "columns_digest",
    "fingerprint",
    "fingerprint_fields",
    "json_schema",
    "json_schema_text",
    "load",
    "load_with_defaults",
]
