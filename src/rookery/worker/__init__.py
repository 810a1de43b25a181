"""Workers: child processes and threads that run batches of envs, and how a caller controls them.

The vector envs, collectors and the Ray wing import this folder. Start reading with ``orders.py``
(orders and answers in shared memory), then ``loop.py`` (the worker's side) and
``worker_backend.py`` (the caller's side); ``lifecycle.py`` handles workers that fail.
"""
