"""Spaces as trees: the parts of a (nested) Dict or Tuple and where they lie; free of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import gymnasium.spaces as spaces

from rookery.common.trees import Tree

# The keys that lead from the whole to a part.
Path: TypeAlias = "tuple[str | int, ...]"


def leaf_spaces(
    space: spaces.Space[Any],
    is_whole: Callable[[Path], bool] = lambda path: False,
    path: Path = (),
) -> Iterator[tuple[Path, Any]]:
    """Yield the parts of a space that are neither Dict nor Tuple, with their paths, in order.

    Args:
        space: any; one that is neither is its own only part.
        is_whole: whether the part at a path is to be yielded as it is, whatever it is made of.
        path: of ``space``.
    """
    branches: Any = ()
    match space:
        case _ if is_whole(path):
            yield path, space
        case spaces.Dict():
            branches = space.spaces.items()
        case spaces.Tuple():
            branches = enumerate(space.spaces)
        case _:
            yield path, space
    for key, branch in branches:
        yield from leaf_spaces(branch, is_whole, (*path, key))


def at_path(tree: Tree, path: Path) -> Any:
    """Return what lies at ``path`` of a tree."""
    for key in path:
        tree = tree[key]
    return tree


def place_of(path: Path) -> str:
    """Write a path as one indexes with it: ``['a'][0]``."""
    return "".join(f"[{key!r}]" for key in path)
