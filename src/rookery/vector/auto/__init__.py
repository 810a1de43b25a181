"""Choice of the fastest backend for an env, by a short measurement.

Only ``make_vec`` imports this package, for ``backend="auto"``. Start reading at ``choose.py``.
"""
