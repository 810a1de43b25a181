"""General helpers: argument checks, pickling, seeds, trees, CPUs and memory.

All other folders may import this one; it imports only `rookery.errors`. Each file is independent;
most calls go to ``arguments.py`` and ``trees.py``.
"""
