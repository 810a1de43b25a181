"""Algorithms that learn from the rollout that was just collected: PPO, A2C and IMPALA.

``rookery.run.algorithms`` imports them by name, and users derive from them. Start reading in
`rookery.learn.on_policy.ppo`.
"""
