"""Reading JSON lines while another process writes them."""

from __future__ import annotations

from pathlib import Path

from rookery.run.log.jsonl import LineFollower
from rookery.run.log.sinks import JSONLSink


def _steps(follower: LineFollower) -> list[int]:
    """The steps of the lines that are new."""
    return [row["step"] for row in follower.read()]


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    follower = LineFollower(tmp_path / "metrics.jsonl")
    assert _steps(follower) == [] and follower.restarts == 0
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert _steps(follower) == [1] and follower.restarts == 0


def test_an_incomplete_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st')
    follower = LineFollower(path)
    assert _steps(follower) == [1]
    with path.open("a") as file:
        file.write('ep": 2}\n{"step": 3}\n')
    assert _steps(follower) == [2, 3]
    assert _steps(follower) == []


def test_a_damaged_line_is_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe{{\n[1]\n\n{"step": 2}\n')
    follower = LineFollower(path)
    assert _steps(follower) == [1, 2]
    assert follower.damaged == 2


def test_a_resumed_run_is_read_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    follower = LineFollower(path)
    assert _steps(follower) == [1, 2, 3]
    sink = JSONLSink(path, resume_step=1)
    sink.write(2, {"loss": 0.5})
    sink.write(3, {"loss": 0.5})  # as long as before
    sink.close()
    assert [row.get("loss") for row in follower.read()] == [None, 0.5, 0.5]
    assert follower.restarts == 1


def test_a_truncated_file_is_read_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    follower = LineFollower(path)
    assert _steps(follower) == [1, 2]
    with path.open("r+") as file:
        file.truncate(12)
    assert _steps(follower) == [1] and follower.restarts == 1


def test_another_run_in_the_same_file_is_recognized_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    follower = LineFollower(path)
    assert _steps(follower) == [1]
    with path.open("r+") as file:
        file.write('{"step": 7}\n{"step": 8}\n')
    assert _steps(follower) == [7, 8] and follower.restarts == 1


def test_a_deleted_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    follower = LineFollower(path)
    assert _steps(follower) == [1]
    path.unlink()
    assert _steps(follower) == [] and follower.restarts == 1
