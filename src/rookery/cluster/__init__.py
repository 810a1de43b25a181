"""Everything that knows Ray: envs, collectors and learners on the nodes of a cluster."""
