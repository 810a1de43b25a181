"""Observations as trees: one array, or dicts and tuples of them, all with the same leading axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
# An array, dict[str, Tree] or tuple[Tree, ...]; Any keeps the recursion out of every signature.
Tree: TypeAlias = Any


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply ``function`` to the arrays at the same place of every tree."""
    if isinstance(tree, dict):
        return {key: tree_map(function, tree[key], *(o[key] for o in others)) for key in tree}
    if isinstance(tree, tuple):
        return tuple(tree_map(function, *branch) for branch in zip(tree, *others, strict=True))
    return function(tree, *others)


def assign(rows: Tree, index: Any, values: Tree) -> None:
    """Do ``rows[index] = values`` in every array of the tree."""
    if isinstance(rows, np.ndarray):
        rows[index] = values
    elif isinstance(rows, dict):
        for key, branch in rows.items():
            assign(branch, index, values[key])
    else:
        for branch, value in zip(rows, values, strict=True):
            assign(branch, index, value)


def take(tree: Tree, index: Any) -> Tree:
    """Do ``tree[index]`` in every array; views or copies as numpy indexing gives them."""
    return tree[index] if isinstance(tree, np.ndarray) else tree_map(lambda a: a[index], tree)


def copy(tree: Tree) -> Tree:
    """Return a tree of fresh arrays with the same values."""
    return tree_map(np.array, tree)


def made_finite(tree: Tree) -> Tree:
    """Replace NaN and infinite values by zeros; text is unchanged."""

    def convert(leaf: Any) -> Any:
        is_float = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
        return np.where(np.isfinite(leaf), leaf, leaf.dtype.type(0)) if is_float else leaf

    return tree_map(convert, tree)


def stack(trees: Sequence[Tree], like: Tree) -> Tree:
    """Stack trees along a new first axis.

    Args:
        trees: K trees with the same structure; K may be zero.
        like: a tree of batched arrays ``[B, ...]`` that gives shapes and dtypes when K is zero.

    Returns:
        A tree of arrays ``[K, ...]``.
    """
    if not trees:
        return tree_map(lambda a: np.empty((0, *a.shape[1:]), a.dtype), like)
    return tree_map(lambda a, *rows: np.asarray(rows, a.dtype), like, *trees)


def merge_axes(tree: Tree) -> Tree:
    """Merge the first two axes of every array or tensor: ``[T, B, ...]`` becomes ``[T * B, ...]``.

    The length is explicit, because -1 is ambiguous if a part of an observation is empty.
    """
    return tree_map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:]), tree)


def num_rows(tree: Tree) -> int:
    """Count the rows of a batch, by its first array."""
    while isinstance(tree, (dict, tuple)):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return len(tree)


def zeros_rows(num_rows: int, like: Tree) -> Tree:
    """Make arrays ``[num_rows, *shape]`` with the shapes and dtypes of ``like``."""
    return tree_map(lambda a: np.zeros((num_rows, *a.shape), a.dtype), like)
