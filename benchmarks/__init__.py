"""Programs that compare rookery with other libraries, and record the results.

`cases` lists what is compared. `runner` measures each contender of a case in a new process, in
several rounds, with `stepping`, `rollouts`, `training` or `starting`. `results/` contains the
samples with their conditions, and `report` writes tables and pictures. Every other module that has
a ``main`` is a separate study, such as `speed_up`.
"""
