"""Several learners in one run, on this machine, started by torchrun, or on a cluster.

The trainer and `rookery.cluster` import this package. Start reading at
`rookery.run.learners.open_learners`, which starts the learners of a run.
"""
