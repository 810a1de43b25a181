"""Searches for the fastest parallel settings of an env, and for good hyperparameters.

The command line imports this package; a run only reads what it writes. Start reading at
`rookery.tuning.search.tune` and, for hyperparameters, `rookery.tuning.hyperparameters.search`.
"""
