"""Statistics of a vector env."""
