"""One environment: how to build it, and how a batch of environments is stepped into arrays.

Nothing here knows processes or torch. Workers, vector envs and runs import this package. Start with
`rookery.env.recipe` (how to build an env) and `rookery.env.batch` (how envs are stepped and reset).
"""
