"""Wrappers of single environments: Atari, MiniGrid, frame stack, action mask.

`rookery.run.families` and users apply them. Workers import them without torch. Start with the
wrapper that you need; each file is independent.
"""
