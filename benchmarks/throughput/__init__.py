"""How fast Eventveil is, against others on the same events and the same machine: ``make bench``."""
