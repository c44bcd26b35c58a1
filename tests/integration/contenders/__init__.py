"""Contenders that count wrong."""
