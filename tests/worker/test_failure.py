from __future__ import annotations

from pathlib import Path

import pytest

from rookery.worker.failures import exit_in_words, oom_kills


@pytest.mark.parametrize(
    ("exitcode", "words"),
    [
        (0, "exited with exit code 0"),
        (-9, "was killed by SIGKILL, probably out of memory"),
        (-15, "was killed by SIGTERM"),
        (-250, "was killed by signal 250"),
        (None, "exited in an unknown way"),
    ],
)
def test_exit_codes_in_words(exitcode: int | None, words: str) -> None:
    assert exit_in_words(exitcode).startswith(words)


def test_a_counted_out_of_memory_kill_is_named() -> None:
    assert "out-of-memory killer killed it" in exit_in_words(-9, out_of_memory=True)


def test_out_of_memory_kills_are_read_from_the_control_group(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    assert oom_kills(events) is None
    events.write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n")
    assert oom_kills(events) == 2
