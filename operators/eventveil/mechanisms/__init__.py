"""The mechanisms: what is released of counts, and what it spends; one file for each kind."""
