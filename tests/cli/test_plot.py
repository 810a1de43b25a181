"""``rookery plot``, on folders as runs leave them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rookery.cli.plot
from rookery.cli import main
from rookery.cli.plot import Panel

ROWS = [
    {"step": 100, "seconds": 1.0, "episodes": 0.0, "loss": None},
    {"step": 200, "seconds": 2.0, "episodes": 3.0, "loss": 0.5, "episode_return_mean": 20.0},
    {"step": 300, "seconds": 4.0, "episodes": 9.0, "loss": 0.25, "episode_return_mean": 30.0},
]


def _run(
    path: Path, seed: int = 0, env: Any = "CartPole-v1", algo: str = "ppo", rows: Any = ROWS,
    train: Any = (), **settings: Any,
) -> str:  # fmt: skip
    """Make the folder of a run; returns its path."""
    path.mkdir()
    run = {"seed": seed, "run_dir": str(path), "total_steps": 300, "num_envs": 2, **dict(train)}
    config = {
        "algo": algo,
        algo: {"learning_rate": 1e-3, "hidden_sizes": None, **settings},
        "own": {"encoder": None, "network": None},
        "source": {"env": env, "env_kwargs": {}, "wrappers": [], "env_module": None},
        "eval_source": None,
        "train": run,
        "versions": {"rookery": f"0.1.{seed}"},
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _evaluate(run: str, *points: tuple[int, float, float]) -> None:
    names = ("step", "eval_return_mean", "eval_return_std")
    lines = [json.dumps(dict(zip(names, point, strict=True))) + "\n" for point in points]
    (Path(run) / "evaluations.jsonl").write_text("".join(lines))


@pytest.fixture
def panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[Panel]]:
    """What each command has drawn; the temporary folder is the current one."""
    monkeypatch.chdir(tmp_path)
    drawn: list[list[Panel]] = []

    def note(file: Any, panels: list[Panel], xlabel: str, ylabel: str, format: str) -> None:
        drawn.append(panels)
        file.write(f"{format} of {ylabel} over {xlabel}".encode())

    monkeypatch.setattr(rookery.cli.plot, "draw_comparison", note)
    return drawn


def _told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def _refused(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """Have a command refused; returns the one line that says why."""
    assert main(["plot", *arguments]) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("rookery: error: ") and captured.out == ""
    return line


def test_seeds_of_the_same_settings_become_one_line(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    slow = [_run(tmp_path / f"slow-{s}", s, learning_rate=1e-4) for s in range(3)]
    fast = [_run(tmp_path / f"fast-{s}", s, learning_rate=0.5) for s in range(2)]
    other = _run(tmp_path / "other", algo="dqn", batch_size=3)
    assert main(["plot", *slow, *fast, other]) == 0
    assert _told(capsys) == {
        "output": "curves.png",
        "runs": 6,
        "groups": {
            "ppo learning_rate=0.0001 (3 seeds)": slow,
            "ppo learning_rate=0.5 (2 seeds)": fast,
            "dqn (1 seed)": [other],
        },
    }
    ((panel,),) = panels
    assert [len(curve.runs) for curve in panel.curves] == [3, 2, 1]
    x, y = panel.curves[0].runs[0]
    assert (x.tolist(), y.tolist()) == ([200, 300], [20, 30])
    assert Path("curves.png").read_text() == "png of episode_return_mean over environment steps"


def test_the_real_picture_is_drawn(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, seed) for seed, name in enumerate("ab")]
    _evaluate(runs[0], (300, 25.0, 5.0))
    output = tmp_path / "both.png"
    assert main(["plot", *runs, "--output", str(output)]) == 0
    assert output.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "both.png"]


def test_each_env_has_a_panel(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"spec": json.dumps({"id": "Pendulum-v1"})}
    runs = [_run(tmp_path / "a"), _run(tmp_path / "b", env=spec), _run(tmp_path / "c", 1)]
    assert main(["plot", *runs]) == 0
    assert [panel.title for panel in panels[0]] == ["CartPole-v1", "Pendulum-v1"]
    assert _told(capsys)["groups"] == {
        "CartPole-v1: ppo (2 seeds)": [runs[0], runs[2]],
        "Pendulum-v1: ppo (1 seed)": [runs[1]],
    }


def test_settings_that_are_named_decide_what_belongs_together(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    a = _run(tmp_path / "a", learning_rate=1e-4, gamma=0.9)
    b = _run(tmp_path / "b", learning_rate=1e-4, gamma=0.8)
    c = _run(tmp_path / "c", learning_rate=1e-3, gamma=0.8, train={"num_envs": 4})
    assert main(["plot", a, b, c, "--group-by", "learning_rate"]) == 0
    assert _told(capsys)["groups"] == {
        "learning_rate=0.0001 (2 runs)": [a, b],
        "learning_rate=0.001 (1 seed)": [c],
    }
    assert main(["plot", a, b, c, "--group-by", "gamma,algo", "num_envs"]) == 0
    assert list(_told(capsys)["groups"]) == [
        "gamma=0.9 ppo num_envs=2 (1 seed)",
        "gamma=0.8 ppo num_envs=2 (1 seed)",
        "gamma=0.8 ppo num_envs=4 (1 seed)",
    ]
    line = _refused([a, "--group-by", "learnin_rate"], capsys)
    assert "did you mean learning_rate" in line


def test_the_same_seed_twice_is_two_runs_and_one_folder_twice_is_one(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = _run(tmp_path / "a"), _run(tmp_path / "b")
    assert main(["plot", a, b, "b", f"{a}/../a"]) == 0
    told = _told(capsys)
    assert (told["runs"], list(told["groups"])) == (2, ["ppo (2 runs)"])


def test_the_x_axis_can_be_time(tmp_path: Path, panels: list[list[Panel]]) -> None:
    run = _run(tmp_path / "a")
    _evaluate(run, (150, 1.0, 2.0), (300, 3.0, 0.0))
    assert main(["plot", run, "--x", "time", "--output", "curve.svg"]) == 0
    (curve,) = panels[0][0].curves
    assert curve.runs[0][0].tolist() == [2.0, 4.0]
    assert curve.evaluations == [(1.5, 1.0, 2.0), (4.0, 3.0, 0.0)]
    assert Path("curve.svg").read_text() == "svg of episode_return_mean over seconds of training"


def test_evaluations_of_seeds_at_one_step_are_put_together(
    tmp_path: Path, panels: list[list[Panel]]
) -> None:
    runs = [_run(tmp_path / name, seed) for seed, name in enumerate("ab")]
    _evaluate(runs[0], (100, 10.0, 3.0), (300, 50.0, 0.0))
    _evaluate(runs[1], (300, 30.0, 0.0))
    assert main(["plot", *runs]) == 0
    assert panels[0][0].curves[0].evaluations == [(100.0, 10.0, 3.0), (300.0, 40.0, 10.0)]
    assert main(["plot", *runs, "--metric", "loss"]) == 0
    assert panels[1][0].curves[0].evaluations == []  # returns are no losses


def test_evaluations_that_only_metrics_tell_of_are_drawn_too(
    tmp_path: Path, panels: list[list[Panel]]
) -> None:
    evaluated = {"step": 300, "episode_return_mean": 1.0, "eval_return_mean": 7.0}
    run = _run(tmp_path / "a", rows=[*ROWS[:2], evaluated])
    assert main(["plot", run]) == 0
    _evaluate(run, (290, 7.0, 0.0), (300, 8.0, 1.0))
    assert main(["plot", run]) == 0
    points = [drawn[0].curves[0].evaluations for drawn in panels]
    assert points == [[(300.0, 7.0, 0.0)], [(290.0, 7.0, 0.0), (300.0, 8.0, 1.0)]]


def test_nulls_and_what_is_no_number_are_left_out(
    tmp_path: Path, panels: list[list[Panel]]
) -> None:
    odd = [{"step": 1, "loss": v} for v in ("high", True, float("nan"), [1])]
    run = _run(tmp_path / "a", rows=[*odd, {"step": None, "loss": 1.0}, *ROWS, {"loss": 2.0}])
    assert main(["plot", run, "--metric", "loss"]) == 0
    x, y = panels[0][0].curves[0].runs[0]
    assert (x.tolist(), y.tolist()) == ([200, 300], [0.5, 0.25])


@pytest.mark.parametrize("torn", ['{"step": 400, "epi', '{"step": 400, "epi\n', "\0" * 512, "7\n"])
def test_a_last_line_that_is_torn_is_skipped(
    tmp_path: Path, panels: list[list[Panel]], torn: str
) -> None:
    run = _run(tmp_path / "a")
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert main(["plot", run]) == 0
    assert panels[0][0].curves[0].runs[0][0].tolist() == [200, 300]


def test_a_run_without_the_metric_is_named_and_left_out(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [_run(tmp_path / "a"), _run(tmp_path / "b", rows=ROWS[:1])]
    assert main(["plot", *runs]) == 0
    captured = capsys.readouterr()
    assert (
        captured.err == f"rookery: {runs[1]} has no episode_return_mean to draw and is left out\n"
    )
    assert json.loads(captured.out)["runs"] == 1


# ---------------------------------------------------------------- what cannot be


def test_a_metric_that_nobody_has_is_answered_with_those_there_are(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path / "a")
    line = _refused([run, "--metric", "episode_retrun_mean"], capsys)
    assert "did you mean episode_return_mean?" in line and "a/metrics.jsonl" in line
    assert "Available: episode_return_mean, episodes, loss, seconds" in line
    young = _run(tmp_path / "young", rows=ROWS[:1])
    assert "are logged after the first episode has ended" in _refused([young], capsys)
    assert "holds no finite number" in _refused([young, "--metric", "loss"], capsys)


def test_of_several_what_holds_no_run_is_left_out_and_named(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "report.html").write_text("of another day")
    assert main(["plot", "a", "empty", "report.html", "a"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1])["runs"] == 1
    first, second = told.err.splitlines()
    assert "left out: empty holds no run" in first and "left out: report.html" in second
    assert "empty holds no run" in _refused(["empty", "report.html"], capsys)
    assert "folder b does not exist" in _refused(["a", "b"], capsys)


def test_what_is_no_run_is_named_with_the_way_out(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(_run(tmp_path / "a"))
    assert "folder nowhere does not exist" in _refused(["nowhere"], capsys)
    assert "folder xxx" in _refused(["x" * 300], capsys)
    assert "pass the folder of the run" in _refused(["a/config.json"], capsys)
    assert "contains 1, such as a" in _refused(["."], capsys)
    (tmp_path / "empty").mkdir()
    assert "empty holds no run" in _refused(["empty"], capsys)
    for text, said in (("", "no complete line"), ('{"step": 1', "no complete line")):
        (run / "metrics.jsonl").write_text(text)
        line = _refused(["a"], capsys)
        assert "a/metrics.jsonl" in line and said in line and "leave it out" in line
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    assert "a/metrics.jsonl, line 2, is not a JSON object" in _refused(["a"], capsys)
    (run / "metrics.jsonl").unlink()
    assert "a/metrics.jsonl does not exist" in _refused(["a"], capsys)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"algo": 1}', '{"algo": "ppo", "train": {}}'])
def test_a_damaged_configuration_is_named(
    tmp_path: Path, panels: list[list[Panel]], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    run = _run(tmp_path / "a")
    (tmp_path / "a" / "config.json").write_text(text)
    assert "a/config.json" in _refused([run], capsys)


@pytest.mark.parametrize(
    ("output", "said", "code"),
    [
        (
            "nowhere/curves.png",
            "the folder nowhere of --output nowhere/curves.png does not exist",
            2,
        ),
        ("curves.gif", "--output must end in .png, .pdf or .svg", 2),
        ("curves", "--output must end in .png, .pdf or .svg", 2),
        ("folder.png", "is a folder", 2),
        ("x" * 300 + ".png", "File name too long", 1),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused(
    tmp_path: Path, panels: list[list[Panel]], capsys: Any, output: str, said: str, code: int
) -> None:
    (tmp_path / "folder.png").mkdir()
    run = _run(tmp_path / "a")
    assert said in _refused([run, "--output", output], capsys, code)


def test_a_folder_that_cannot_be_written_to_keeps_the_picture_before(
    tmp_path: Path, panels: list[list[Panel]], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Any, target: Any) -> None:
        raise PermissionError(13, "Permission denied")

    run = _run(tmp_path / "a")
    files = sorted(path.name for path in Path(run).iterdir())
    Path("curves.png").write_text("before")
    monkeypatch.setattr(os, "replace", refuse)
    for output in ("curves.png", "a/curves.png"):  # also beside a run, of which nothing is said
        line = _refused([run, "--output", output], capsys, 1)
        assert f"cannot write {output}: Permission denied; make its folder writable" in line
        assert "another --output" in line and "run" not in line.removeprefix("rookery")
    assert Path("curves.png").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "curves.png"]
    assert sorted(path.name for path in Path(run).iterdir()) == files


def test_drawing_needs_no_torch(tmp_path: Path) -> None:
    run = _run(tmp_path / "a")
    code = (
        "import sys; from rookery.cli import main; code = main(sys.argv[1:]);"
        "print([name for name in ('torch', 'tyro', 'tensorboard') if name in sys.modules], code)"
    )
    command = [sys.executable, "-c", code, "plot", run, "--output", str(tmp_path / "a.png")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1] == "[] 0", result.stdout + result.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_real_run_can_be_drawn(tmp_path: Path, panels: list[list[Panel]], capsys: Any) -> None:
    few = ["--total-steps", "256", "--num-envs", "2", "--num-steps", "32", "--backend", "serial"]
    for seed in "01":
        few_more = [*few, "--seed", seed, "--run-dir", seed, "--eval-episodes", "2"]
        assert main(["train", "ppo", "CartPole-v1", *few_more]) == 0
    trained = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["plot", "0", "1"]) == 0
    (curve,) = panels[0][0].curves
    assert curve.label == "ppo (2 seeds)"
    ((step, mean, _),) = curve.evaluations
    assert step == 256
    assert mean == pytest.approx(np.mean([each["eval_return_mean"] for each in trained]))
