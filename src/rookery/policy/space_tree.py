"""The leaves of nested spaces and their paths, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import gymnasium.spaces as spaces

from rookery.common.trees import Tree

# The keys that lead from the whole tree to a part.
Path: TypeAlias = "tuple[str | int, ...]"


def leaf_spaces(
    space: spaces.Space[Any],
    is_whole: Callable[[Path], bool] = lambda path: False,
    path: Path = (),
) -> Iterator[tuple[Path, Any]]:
    """Yield the paths and spaces of all parts that are neither Dict nor Tuple, in order.

    Args:
        space: any space; a space that is neither Dict nor Tuple is its only part.
        is_whole: returns True for the path of a Dict or Tuple that is yielded undivided.
        path: path of ``space``.
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
    """Return the part of a tree at ``path``."""
    for key in path:
        tree = tree[key]
    return tree


def place_of(path: Path) -> str:
    """Return a path as an index expression, such as ``['a'][0]``."""
    return "".join(f"[{key!r}]" for key in path)
