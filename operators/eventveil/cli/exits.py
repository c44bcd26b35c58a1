"""The exit codes of commands."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_MEMORY = 75
EXIT_INVALID = 78
