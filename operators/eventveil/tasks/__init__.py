"""What becomes of one partition, purely: count, combine, charge, draw and publish, in transactions."""
