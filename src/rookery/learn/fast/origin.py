"""The code of the losses whose gradients are derived by hand."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
import tokenize
from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium as gym

from rookery.learn.on_policy.actor_critic import standardized
from rookery.learn.on_policy.batches import evaluate

# Hash of the code of each loss and of the functions that it calls. Derive the gradient anew before
# you change one.
DERIVED_FROM = {
    "ppo": "a57842fcc268ba42",
    "a2c": "577e2ee23ac3f77b",
}


_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


@cache
def is_derived(name: str, loss: Callable[..., Any]) -> bool:
    """Return True if the derived gradient of an algorithm fits the code of its loss.

    If not, a warning is given once. Code without source, as in a frozen program, cannot have been
    edited and fits.

    Args:
        name: name of the algorithm.
        loss: its loss.
    """
    try:
        found = fingerprint(loss, evaluate, standardized)
    except (OSError, TypeError):
        return True
    if found == DERIVED_FROM[name]:
        return True
    gym.logger.warn(
        "%s",
        f"{loss.__qualname__} was edited, so torch differentiates it instead of "
        "rookery.learn.fast; the results are right, but each gradient step takes longer",
    )
    return False


def fingerprint(*functions: Callable[..., Any]) -> str:
    """Return a hash of the code of functions, without comments and docstrings.

    Raises:
        OSError: the source of a function is not available.
    """
    return hashlib.sha256("\n".join(map(_code, functions)).encode()).hexdigest()[:16]


def _code(function: Callable[..., Any]) -> str:
    """Return the tokens of a function, which are the same in all versions of Python."""
    source = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    lines = source.splitlines(keepends=True)
    if ast.get_docstring(definition) is not None:
        docstring = definition.body[0]
        del lines[docstring.lineno - 1 : docstring.end_lineno]
    tokens = tokenize.generate_tokens(iter(lines).__next__)
    return " ".join(token.string for token in tokens if token.type not in _LAYOUT)
