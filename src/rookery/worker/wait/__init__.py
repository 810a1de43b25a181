"""Events with which a caller and its workers wait for each other, with a measured back-off.

Workers, vector envs and the Ray wing import this folder. Start reading with ``event.py``.
"""
