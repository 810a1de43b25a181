"""``rookery report``, on folders as runs leave them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from browser import browser, opened
from programs import output_of
from recorded_runs import metrics_rows, telemetry_rows, write_run

from rookery.cli import main
from rookery.run.checkpoint.run_dir import RunDirectory

EVIL = "<script>document.title = 'harm'</script><img src=x onerror=alert(1)>"


# Charts take the time of these tests: two are enough.
FEW = [
    {name: row.get(name) for name in ("step", "seconds", "episode_return_mean", "value_loss")}
    for row in metrics_rows()
]


def _told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return told


def test_the_page_of_a_run_lies_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(
        tmp_path / "run", telemetry=telemetry_rows(), evaluations=[(5000, 200.0, 9.0)],
        gamma=0.9, learning_rate=3e-4,
    )  # fmt: skip
    before = {file.name for file in path.iterdir()}
    assert main(["report", str(path)]) == 0
    page = path / "report.html"
    assert _told(capsys) == {"output": str(page), "runs": 1, "groups": ["ppo (1 seed)"]}
    assert {file.name for file in path.iterdir()} == {*before, "report.html"}
    text = page.read_text()
    for part in ("CartPole-v1, ppo, seed 0", "200 ± 9", "finished: all steps made", "72 µs"):
        assert part in text
    # gamma is not the default; the learning rate is
    assert '<td class="changed">0.9</td><td class="quiet">0.99</td>' in text
    assert '<tr><th>learning_rate</th><td>0.0003</td><td class="quiet">0.0003</td>' in text
    assert main(["report", str(path)]) == 0  # in the place of the one before
    RunDirectory(path).clear()  # as a new run in the folder does
    assert not page.exists()


def test_several_runs_are_grouped_as_plot_groups_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    slow = [write_run(tmp_path / f"slow-{s}", FEW, seed=s, learning_rate=1e-4) for s in range(2)]
    fast = write_run(tmp_path / "fast", FEW, learning_rate=0.5, telemetry=telemetry_rows())
    runs = [str(path) for path in (*slow, fast)]
    groups = ["ppo learning_rate=0.0001 (2 seeds)", "ppo learning_rate=0.5 (1 seed)"]
    assert main(["report", *runs]) == 0
    assert _told(capsys) == {"output": "report.html", "runs": 3, "groups": groups}
    text = Path("report.html").read_text()
    assert '<tr class="differs"><th>learning_rate</th>' in text
    assert '<tr class="differs"><th>seed</th>' not in text
    assert "slow-0, slow-1 have no telemetry.jsonl" in text
    assert main(["report", *runs, "--output", "all.html", "--group-by", "algo"]) == 0
    assert _told(capsys)["groups"] == ["ppo (3 runs)"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such"], "folder no/such does not exist"),
        (["."], "is not a run, but contains 1, such as run"),
        (["run", "--output", "a.pdf"], "--output must end in .html or .htm, got 'a.pdf'"),
        (["run", "--output", "no/a.html"], "the folder no of --output no/a.html does not exist"),
        (["run", "--outptu", "a.html"], "did you mean --output?"),
        (["run", "--group-by", "gama"], "gama"),
        (["new"], "the run has not logged an update yet"),
        ([], "RUN_DIR"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    if arguments == ["new"]:
        write_run(tmp_path / "new", [])
    assert main(["report", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rookery: error: ") and message in line
    assert not list(tmp_path.rglob("*.htm*"))


def test_a_page_that_cannot_be_written_keeps_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path / "run", FEW)
    (path / "report.html").write_text("before")

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    assert main(["report", str(path)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert (path / "report.html").read_text() == "before"
    assert not list(path.glob("*.tmp"))


def test_numbers_of_a_run_that_has_diverged_are_drawn(tmp_path: Path) -> None:
    rows = [dict(row) for row in FEW]
    for i, row in enumerate(rows):
        row["value_loss"] = None if i % 3 == 0 else 10.0 ** (7 * i)
    assert main(["report", str(write_run(tmp_path / "run", rows))]) == 0


def test_it_needs_no_torch(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", FEW, telemetry=telemetry_rows())
    code = (
        "import sys; from rookery.cli import main; "
        f"main(['report', {str(path)!r}]); main(['watch', {str(path)!r}]); "
        "print([name for name in ('torch', 'tyro') if name in sys.modules])"
    )
    assert output_of(code).splitlines()[-1] == "[]"


@pytest.mark.skipif(browser() is None, reason="there is no Chromium to open the page in")
def test_a_browser_shows_the_page_without_complaint_and_without_the_network(tmp_path: Path) -> None:
    program = browser()
    assert program is not None
    telemetry = telemetry_rows()
    telemetry[-1]["workers"][1]["restart_causes"] = [EVIL]
    runs = [
        write_run(tmp_path / name, env=EVIL, telemetry=telemetry, evaluations=[(5000, 200.0, 9.0)],
                  seed=i, gamma=EVIL, train={"total_steps": 10_000 - i})
        for i, name in enumerate(("<b>a", "b" * 60))
    ]  # fmt: skip
    page_file = tmp_path / "page.html"
    assert main(["report", *map(str, runs), "--output", str(page_file)]) == 0
    complaints = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
    papers = []
    (tmp_path / "profile").mkdir()
    with opened(program, tmp_path / "profile") as page:
        for width, scheme in ((390, "light"), (1200, "dark")):
            page.look(width, scheme=scheme)
            page.open(page_file)
            assert page.value_of("document.documentElement.scrollWidth") <= width
            assert page.value_of("document.querySelectorAll('script, img').length") == 0
            assert "harm" not in page.value_of("document.title").replace(EVIL, "")
            shown = "[...document.querySelectorAll('svg')].filter(s => s.clientWidth > 0).length"
            assert page.value_of(shown) >= 8
            style = "getComputedStyle(document.body).backgroundColor"
            papers.append(page.value_of(style))
            asked = [e for method, e in page.events if method == "Network.requestWillBeSent"]
            assert [each["request"]["url"] for each in asked] == [page_file.as_uri()]
            assert [e for method, e in page.events if method in complaints] == []
    assert papers == ["rgb(255, 255, 255)", "rgb(20, 24, 31)"]
