"""Programs that measure rookery beside its peers, and record what they measured.

Flow: a subject (`stepping`, `rollouts`, `startup`, `ppo`, `waiting`) lists its cases; the runner
measures every contender of a case in a fresh process, in turn, and repeats that; `results/` keeps
the samples with their conditions; `targets`, `picture` and `readme_table` read them.
"""
