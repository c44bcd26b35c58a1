"""Workers on the log in memory: they crash, are paused and taken over between any two steps of the protocol.

The cores are the program's, and so is the table with one writer (``FencedTable``) with its fault points. What
``tasks.py`` puts around them is what the worker's owners do without their threads, timers and cluster.
"""
