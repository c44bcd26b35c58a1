"""Mechanisms, ledgers and noises that do not keep what they promise; several are printed in papers."""
