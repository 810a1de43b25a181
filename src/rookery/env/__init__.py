"""One environment: how to build it, and how a batch of environments is stepped into arrays.

Workers, vector envs and runs import this folder, which depends on neither processes nor torch.
Start reading in ``recipe.py`` (how an env is built) and ``batch.py`` (how envs are stepped).
"""
