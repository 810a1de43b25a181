"""Algorithms that learn from the rollout that was just collected."""
