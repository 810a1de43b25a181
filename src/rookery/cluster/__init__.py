"""Everything that knows Ray: envs, collectors and learners on the nodes of a cluster.

Only the core's lazy imports by name and ``cli/`` use it. Start reading at ``ray_vector_env.py`` for
steps, at ``ray_pool.py`` for rollouts, and at ``cluster_learners.py`` for several learners.
"""
