"""Looks at what a source really holds, before anything runs: what would count, and what to change."""
