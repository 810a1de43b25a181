"""The search for hyperparameters that reach a high return.

``rookery tune --hyperparameters`` imports this package. Start reading at `Search`, which runs the
trials, and `Study`, which stores them.
"""
