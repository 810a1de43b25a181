"""The runner of the repository's benchmarks: who takes part, and what is shown of them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def the_repository_is_on_the_path() -> Iterator[None]:
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def _result(case: str, values: dict[str, list[float]]) -> Any:
    from benchmarks.cases import CASES
    from benchmarks.runner import Result

    where = {
        "cores": 2, "processor": "one", "system": "Linux", "kernel": "6", "python": "3.11",
        "versions": {"rookery": "1", "gymnasium": "2"}, "commit": "abc", "date": "2026-01-01 12:00",
        "load_average": 0.1,
    }  # fmt: skip
    result = Result(CASES[case], where)
    for name, own in values.items():
        result.samples[name] = [{"value": value, "children_pss_mb": 1.0} for value in own]
    return result


def test_every_contender_of_every_case_exists() -> None:
    from benchmarks.cases import ALWAYS, CASES, LIMIT, LOOP
    from benchmarks.environments import MAKERS

    for case in CASES.values():
        known = importlib.import_module(f"benchmarks.{case.kind}").CONTENDERS
        assert set(case.contenders) <= {*known, LIMIT, LOOP}, case.name
        assert len(set(case.contenders)) == len(case.contenders)
        assert case.env in MAKERS
    assert set(ALWAYS) <= {name for case in CASES.values() for name in case.contenders}


def test_variants_that_are_far_from_their_librarys_best_stop_after_the_first_round() -> None:
    values = {
        "limit": [100.0], "rookery: auto": [90.0], "rookery: workers": [30.0],
        "SB3: DummyVecEnv": [10.0], "SB3: SubprocVecEnv": [1.0],
    }  # fmt: skip
    result = _result("cartpole-64", values)
    assert all(result.goes_on(name, 0) for name in values)
    going = {name for name in values if result.goes_on(name, 1)}
    assert going == {"limit", "rookery: auto", "SB3: DummyVecEnv", "SB3: SubprocVecEnv"}
    result.failures["limit"] = "gone"
    assert not result.goes_on("limit", 0)


def test_of_seconds_fewer_are_better() -> None:
    result = _result("start-64", {"rookery: workers": [1.0], "SB3: SubprocVecEnv, fork": [3.0]})
    assert result.slowness("rookery: workers") < result.slowness("SB3: SubprocVecEnv, fork")
    from benchmarks.report import table_of

    rows = list(table_of(result))
    assert "rookery" in rows[2] and "SB3" in rows[3]
    assert "1 MB" in rows[2]


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    from benchmarks.runner import read, write

    result = _result("cartpole-64", {"for-loop": [2.0, 4.0, 3.0]})
    result.failures["SB3: DummyVecEnv"] = "no such thing"
    path = write(tmp_path, result)
    again = read(tmp_path, result.case)
    assert again is not None
    assert again.median("for-loop") == 3.0
    assert again.failures == result.failures and again.conditions == result.conditions
    assert json.loads(path.read_text())["case"] == "cartpole-64"
    from benchmarks.cases import CASES

    assert read(tmp_path, CASES["pong-16"]) is None


def test_the_readme_shows_those_that_were_measured_to_the_end() -> None:
    from benchmarks.report import _readme_table

    values = {
        "for-loop": [10.0, 12.0], "rookery: auto": [20.0, 30.0], "SB3: DummyVecEnv": [9.0, 9.0],
        "Tianshou: DummyVectorEnv": [5.0, 5.0], "TorchRL: SerialEnv": [1.0],
        "native: CartPoleVectorEnv of Gymnasium, in numpy": [200.0, 300.0],
    }  # fmt: skip
    head, _, row = _readme_table({"cartpole-64": _result("cartpole-64", values)}, 0)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert head.count("|") == row.count("|")
    assert cells == [
        "CartPole-v1, 64 envs", "11.0 (10.0–12.0)", "**25.0 (20.0–30.0)**",
        "9.00 (9.00–9.00)<br>SB3: DummyVecEnv", "5.00 (5.00–5.00)<br>Tianshou: DummyVectorEnv",
        "250 (200–300)<br>CartPoleVectorEnv of Gymnasium, in numpy",
    ]  # fmt: skip


def test_the_page_names_held_out_cases_conditions_and_who_is_absent() -> None:
    from benchmarks.report import _page

    result = _result("hopper-12", {"limit": [4.0], "rookery: auto": [2.0]})
    result.failures["SB3: DummyVecEnv"] = "fell | over"
    page = "\n".join(_page({"hopper-12": result}))
    assert "Hopper-v5, 12 envs (held out)" in page
    assert "| **rookery: auto** | 2.00 | 2.00 to 2.00 | 1 | 0.50 |" in page
    assert "fell / over" in page
    assert "PufferLib 3" in page
    assert "kernel 6" in page and "commit abc" in page


def test_contenders_that_left_a_case_are_not_read(tmp_path: Path) -> None:
    from benchmarks.cases import CASES
    from benchmarks.runner import read, write

    result = _result("waiting-32", {"rookery: auto": [90.0], "rookery: of before": [100.0]})
    write(tmp_path, result)
    found = read(tmp_path, CASES["waiting-32"])
    assert found is not None
    assert found.best_of("rookery") == "rookery: auto"
