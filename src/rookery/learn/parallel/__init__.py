"""Several learners that share one set of weights."""
