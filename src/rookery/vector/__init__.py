"""Vector envs: many environments behind Gymnasium's vector interface, on several backends.

Everything above this package imports it: collectors, runs, commands and Ray backends. Start reading
at ``make.py`` (the choice of a backend), then ``base.py`` (the public calls).
"""
