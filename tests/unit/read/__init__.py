"""Tests of ``eventveil.read``."""
