"""Decoding and counting in bulk against one by one, on values that were made to tell them apart; and what one
user changes in the counts of random histories.
"""
