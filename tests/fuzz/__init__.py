"""Decoding and counting in bulk against one by one, on values that were made to tell them apart."""
