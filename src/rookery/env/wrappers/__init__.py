"""Wrappers of single environments."""
