"""Networks and distributions of actions, defined in torch.

Learners and `rookery.policy.make_policy` import this folder. Start reading in ``policy_module.py``.
"""
