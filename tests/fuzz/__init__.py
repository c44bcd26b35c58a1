"""Bulk decoding against one-by-one decoding, on values that were made to tell them apart."""
