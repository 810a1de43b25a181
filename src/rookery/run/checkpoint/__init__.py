"""Checkpoints and the files of a run directory.

The run, the reports and the command line import this package. Start reading at
`rookery.run.checkpoint.state`, which saves and restores the state of a trainer, and at
`rookery.run.checkpoint.run_dir`, which names the files.
"""
