"""Advice before anything runs: generated events, and which topology suits given ones. Pure but for files."""
