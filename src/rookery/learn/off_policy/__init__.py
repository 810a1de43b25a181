"""Algorithms that learn from a replay buffer: DQN, QR-DQN, SAC and TD3.

``rookery.run.algorithms`` imports them by name, and users derive from them. Start reading in
`rookery.learn.off_policy.replay_learner`.
"""
