"""Workers on the log in memory: they crash, are paused and taken over between any two steps of the protocol.

The tasks are the program's, and so is the table with one writer (``FencedTable``) with its fault points. What
``world.py`` puts around them is what a worker does, without its threads, timers and cluster.
"""
