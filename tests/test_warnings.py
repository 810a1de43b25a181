"""Warnings are told as they are written, whatever names they hold."""

from __future__ import annotations

import ast
from pathlib import Path

import rookery

SOURCES = Path(rookery.__file__).parent


def _formats(source: str) -> list[ast.expr]:
    """What calls of Gymnasium's logger give as its first argument, which is a %-format."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.args[0] for call in calls if ast.unparse(call.func).startswith("gym.logger.")]


def test_gymnasiums_logger_is_given_texts_beside_their_format():
    formats = {path: _formats(path.read_text("utf-8")) for path in SOURCES.rglob("*.py")}
    assert sum(map(len, formats.values())) > 5
    for path, given in formats.items():
        assert all(ast.unparse(each) == "'%s'" for each in given), path
