"""General helpers that know nothing of environments or training."""
