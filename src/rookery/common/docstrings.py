"""Docstrings of dataclasses that inherit fields."""

from __future__ import annotations

from dataclasses import fields
from inspect import cleandoc
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type[Any])

_HEADING = "Attributes:\n"
_INDENT = 4  # of the name of an attribute


def with_inherited_attributes(kind: Kind) -> Kind:
    """Append the attributes that base classes document to the docstring of a dataclass.

    ``help``, the docs and ``--help`` then show all fields, although each is documented once. The
    order is that of the fields. The text of a subclass replaces the text of its bases.
    """
    texts = attribute_texts(kind)
    listed = [texts[field.name] for field in fields(kind) if field.name in texts]
    introduction = cleandoc(kind.__doc__ or "").partition(_HEADING)[0].rstrip()
    kind.__doc__ = f"{introduction}\n\n{_HEADING}{''.join(listed)}"
    return kind


def attribute_texts(kind: type[Any]) -> dict[str, str]:
    """Return the documentation of each attribute of a class and its bases, by name."""
    texts = dict[str, str]()
    for each in reversed(kind.__mro__):
        texts |= _attributes(cleandoc(each.__doc__ or ""))
    return texts


def _attributes(docstring: str) -> dict[str, str]:
    """Return the lines of each attribute that a class docstring documents, by name."""
    texts, name = dict[str, str](), ""
    for line in docstring.partition(_HEADING)[2].splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if indent == _INDENT:
            name = line.strip().partition(":")[0]
            texts[name] = f"{line}\n"
        elif indent > _INDENT:
            texts[name] += f"{line}\n"
    return texts
