"""Starting child processes: start methods, fork servers, limits of the system, and inherited state.

Worker processes, learner processes and the Ray wing import this folder. Start reading with
``launch.py``.
"""
