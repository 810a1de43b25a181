"""Counters and times of a vector env, as frozen snapshots and as a printed table.

The base class of vector envs creates them; collectors, runs and commands read them. Start reading
at ``snapshot.py``.
"""
