"""What benchmarks.learning records: when a run is known, how it is written, and its curves."""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PRESET = "ppo/CartPole-v1"


@pytest.fixture(scope="module", autouse=True)
def fonts_are_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib keeps the files of its fonts open, which no test here is to blame for."""
    pytest.importorskip("matplotlib")
    from rookery.run.log.curve import draw_curve

    draw_curve(tmp_path_factory.mktemp("fonts") / "curve.png", [1], [1.0], "fonts")


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import learning

    return learning


def _key(learning: Any, seed: int = 101) -> list[Any]:
    algo, _, env = PRESET.partition("/")
    return learning.key_of(learning.presets(algo)[env], seed, "rookery")


def test_a_setting_that_is_new_invalidates_no_run(learning: Any) -> None:
    now = _key(learning)
    before = copy.deepcopy(now)
    assert before[3].pop("image_encoder") == "nature"  # the default, which there was none of then
    before[3]["activation"] = "tanh"  # another, which is written down
    assert learning.is_same(before, now) and learning.is_same(now, before)


@pytest.mark.parametrize(
    ("name", "value"), [("gamma", 0.5), ("activation", "relu"), ("num_envs", 9), ("gone", 1)]
)
def test_other_settings_make_another_run(learning: Any, name: str, value: Any) -> None:
    now = _key(learning)
    other = [*now[:3], {**now[3], name: value}]
    assert not learning.is_same(other, now)
    assert not learning.is_same(_key(learning, seed=102), now)
    absent = [*now[:3], {k: v for k, v in now[3].items() if k != "gamma"}]
    assert not learning.is_same(absent, now)  # the preset's own is not the default


def test_records_are_json_with_numbers_on_one_line(learning: Any) -> None:
    runs = [
        {"key": ["a", {"sizes": [64, 64], "none": []}], "curve": {"steps": [1], "returns": [-2.5]}},
        {"words": ["e", "1, 2"], "numbers": [1e-05, -3, 1e20]},
    ]
    text = learning.as_text(runs)
    assert json.loads(text) == {"runs": runs}
    assert "[64, 64]" in text and "[-2.5]" in text


def _made(learning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    monkeypatch.setattr(learning, "RESULT", tmp_path / "learning.json")
    monkeypatch.setattr(learning, "TABLE", tmp_path / "results.md")
    monkeypatch.setattr(sys, "argv", ["learning", *options])
    learning.main()
    return json.loads((tmp_path / "learning.json").read_text())["runs"]


def test_curves_are_drawn_of_runs_that_have_one(
    learning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = {"steps": [0, 50_000, 100_000], "returns": [20.0, 300.0, 500.0]}
    conditions = {"processor": "one", "cores": 2}
    plain = {"steps": 100_000, "seconds": 5.0, "return": 500.0, "conditions": conditions}
    runs = [
        {"key": _key(learning, 101), **plain},  # recorded before curves were
        {"key": _key(learning, 102), **plain, "curve": curve},
        {"key": _key(learning, 103), **plain, "curve": {"steps": [], "returns": []}},
    ]
    runs[1]["seconds"], runs[1]["conditions"] = 99.0, {**conditions, "runs_at_once": 2}
    (tmp_path / "learning.json").write_text(json.dumps({"runs": runs}))
    options = ["--algo", "ppo", "--env", "CartPole-v1", "--seeds", "3", "--jobs", "2"]
    drawn: list[Any] = []
    draw = learning.draw
    monkeypatch.setattr(learning, "draw", lambda *given: drawn.append(given) or draw(*given))
    assert _made(learning, tmp_path, monkeypatch, *options) == runs  # none was missing
    (panel,) = drawn[0][0]
    assert (panel.title, panel.published) == ("CartPole-v1", 500.0)
    assert panel.curves == [(curve["steps"], curve["returns"])]
    picture = tmp_path / "pictures" / "learning-ppo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "results.md").read_text()
    assert "](pictures/learning-ppo.png)" in table and "learning-a2c" not in table
    assert "| 500 (500, 500, 500) | 500 ± 0 | 5 |" in table  # seconds of those made alone


def test_a_curve_of_a_run_has_its_ends_and_at_most_a_hundred_points(
    learning: Any, tmp_path: Path
) -> None:
    from benchmarks.learning_runs import curve_of

    (tmp_path / "config.json").write_text(
        json.dumps({"algo": "ppo", "ppo": {}, "train": {}, "source": {"env": "CartPole-v1"}})
    )
    metrics = tmp_path / "metrics.jsonl"
    for count, points in [(250, 100), (100, 100), (7, 7), (1, 1)]:
        rows = [{"step": 8 * i, "episode_return_mean": i / 3} for i in range(count)]
        metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
        curve = curve_of(tmp_path)
        assert len(curve["steps"]) == len(curve["returns"]) == points
        assert (curve["steps"][0], curve["steps"][-1]) == (0, 8 * (count - 1))
        assert curve["returns"][-1] == round((count - 1) / 3, 2)
    metrics.write_text('{"step": 8}\n')
    assert curve_of(tmp_path) == {"steps": [], "returns": []}


def _echo(preset: Any, seed: int) -> dict[str, Any]:
    if seed == 102:
        raise ValueError("no such seed")
    return {"return": float(seed), "preset": preset.name}


def test_runs_at_the_same_time_are_told_one_by_one_also_where_one_fails(learning: Any) -> None:
    options = argparse.Namespace(algo=["ppo"], env=["CartPole-v1"], seeds=4)
    cells = list(learning._wanted(options))
    made = {cell[1]: found for cell, found in learning._made(_echo, cells, 3, 60.0)}
    assert {seed: found["return"] for seed, found in made.items() if seed != 102} == {
        101: 101.0, 103: 103.0, 104: 104.0
    }  # fmt: skip
    assert str(made[102]) == "no such seed"
    assert made[101]["preset"] == PRESET and made[101]["conditions"]["runs_at_once"] == 3
    assert list(learning._made(_echo, cells, 2, -1.0)) == []  # it is too late to begin one


def _record_faults(learning: Any, presets: list[Any], runs: list[Any], page: str) -> list[str]:
    """Compare the presets' ``reached`` with the recorded runs that have the presets' settings."""
    faults = []
    not_run = page.partition("## Not run here")[2].partition("\n## ")[0]
    for preset in presets:
        own = [run for run in runs if run["key"][:2] == [preset.name, "rookery"]]
        returns = [
            run["return"]
            for run in own
            if learning.is_same(run["key"], learning.key_of(preset, run["key"][2], "rookery"))
        ]
        if preset.reached is None:
            if returns:
                faults.append(f"{preset.name} has recorded runs, but no reached")
            if f"- {preset.name}\n" not in not_run:
                faults.append(f"{preset.name} was not run, which docs/results.md does not say")
        elif not returns or len(returns) < len(own):
            faults.append(f"{preset.name} has a reached, but its runs had other settings")
        elif preset.reached != pytest.approx(statistics.mean(returns), abs=0.06):
            faults.append(f"{preset.name} has another reached than the mean of its runs")
    return faults


def _everything(learning: Any) -> tuple[list[Any], list[Any], str]:
    presets = [each for algo in learning.BUILT_IN for each in learning.presets(algo).values()]
    runs = json.loads(learning.RESULT.read_text())["runs"]
    return presets, runs, learning.TABLE.read_text(encoding="utf-8")


def test_every_reached_belongs_to_recorded_runs_with_the_presets_settings(learning: Any) -> None:
    presets, runs, page = _everything(learning)
    assert _record_faults(learning, presets, runs, page) == []


def test_results_page_is_made_of_the_recorded_runs(learning: Any) -> None:
    _, runs, page = _everything(learning)
    folder = learning.TABLE.parent / "pictures"
    algorithms = [algo for algo in learning.BUILT_IN if f"learning-{algo}.png" in page]
    assert page == learning._table(runs, [folder / f"learning-{algo}.png" for algo in algorithms])


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"gamma": 0.5}},
        {"run": {"total_steps": 5, "num_envs": 8}},
        {"reached": 499.0},
        {"reached": None},
    ],
)
def test_a_preset_that_changed_after_its_runs_is_found(
    learning: Any, changes: dict[str, Any]
) -> None:
    presets, runs, page = _everything(learning)
    index = next(i for i, preset in enumerate(presets) if preset.name == PRESET)
    presets[index] = replace(presets[index], **changes)
    assert any(PRESET in fault for fault in _record_faults(learning, presets, runs, page))


@pytest.mark.slow
def test_a_run_that_was_broken_off_is_resumed(learning: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import rookery

    run_dir = tmp_path / "run"
    config = rookery.PPOConfig(num_steps=128)
    trainer = rookery.Trainer(
        "CartPole-v1", algo=config, num_envs=2, total_steps=1024, run_dir=run_dir,
        checkpoint_interval_s=0.0,
    )  # fmt: skip
    with trainer:
        next(iter(trainer))
    another = ["ppo", "Acrobot-v1"]  # not asked for where a run is there
    told = learning.train_by_command(another, 6, run_dir)
    assert told["steps"] == 1024 and told["curve"]["steps"] == [256, 512, 768, 1024]
    assert "cpu_seconds" not in told
    command = ["ppo", "CartPole-v1", "--total-steps", "256", "--num-steps", "128"]
    told = learning.train_by_command(command, 5, tmp_path / "new")
    assert told["cpu_seconds"] > 0 and (tmp_path / "new" / "config.json").exists()
