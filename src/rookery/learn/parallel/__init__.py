"""Several learners that train one set of weights.

Algorithms and ``rookery.run`` import it. Start reading in `rookery.learn.parallel.peers`.
"""
