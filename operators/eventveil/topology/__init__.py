"""Topology files: what Eventveil reads, counts, protects and writes, validated before anything runs."""
