"""Runs draw no learning curves."""

from __future__ import annotations

from collections.abc import Iterator

import pictures
import pytest


@pytest.fixture(scope="session", autouse=True)
def curves_are_not_drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pictures.one_for_all(tmp_path_factory.mktemp("pictures")):
        yield
