"""Records as they are written, byte for byte: ``records.jsonl`` (see ``making.py``)."""
