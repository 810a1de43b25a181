"""The soak says so when something was wrong, and records only when it is told to."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """tests/soak as a module that records elsewhere and runs no other tests."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = Path(__file__).parent.parent / "soak" / "__main__.py"
    spec = importlib.util.spec_from_file_location("soak", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "soak", module)  # its dataclasses look it up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RESULT", tmp_path / "soak.json")
    monkeypatch.setattr(module.Soak, "kill_points", lambda self: None)
    return module


def _run(soak: ModuleType, monkeypatch: pytest.MonkeyPatch, play: Any, *flags: str) -> int:
    monkeypatch.setattr(soak, "run_machine", play)
    monkeypatch.setattr(sys, "argv", ["soak", "--minutes", "0.0001", "--seed", "7", *flags])
    return int(soak.main())


def _play_well(machine: Any, **options: Any) -> None:
    machine.totals["operations"] = machine.totals.get("operations", 0) + 10


def _play_badly(machine: Any, **options: Any) -> None:
    raise AssertionError("another env's row")


def test_a_wrong_answer_is_printed_with_its_seed_and_is_exit_code_1(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(soak, monkeypatch, _play_badly) == 1
    told = capsys.readouterr().out
    assert "WRONG: serial, seed 7" in told and "another env's row" in told
    assert not soak.RESULT.exists()


def test_what_was_done_is_printed_and_recorded_on_request(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(soak, monkeypatch, _play_well, "--record") == 0
    told = capsys.readouterr().out
    assert "wrong answers: 0" in told
    report = json.loads(soak.RESULT.read_text())
    assert report["counts"]["operations"] == 10 * report["rounds"] > 0
    assert report["first_seed"] == 7 and report["samples"][0]["descriptors"] > 0
