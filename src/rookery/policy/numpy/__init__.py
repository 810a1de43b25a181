"""Acting with small networks in numpy, without torch.

`rookery.policy` and the fast gradients of ``learn`` import this folder. Start reading in
``numpy_policy.py``.
"""
