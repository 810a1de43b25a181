"""Several learners in one run."""
