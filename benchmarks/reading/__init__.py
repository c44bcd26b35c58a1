"""How often the intervals of ``eventveil.read`` cover: counts, and totals over days, weeks and groups."""
