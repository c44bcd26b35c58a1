"""Tests of ``eventveil.doctor``."""
