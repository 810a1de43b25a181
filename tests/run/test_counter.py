"""Tables and counters in the terminal."""

from __future__ import annotations

import io

import pytest

from rookery.run.log.terminal import Counter, print_table


def test_without_a_terminal_each_tenth_and_each_text_is_a_line() -> None:
    stream = io.StringIO()
    with Counter(40, "samples", stream) as counter:
        counter.doing("the first")
        for number in range(1, 41):
            counter.done("it failed" if number == 3 else "")
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["3/40 samples  it failed", "4/40 samples"]
    assert lines[-1] == "40/40 samples" and len(lines) == 11


def test_a_counter_of_nothing_may_count_more() -> None:
    stream = io.StringIO()
    with Counter(0, "trials", stream) as counter:
        counter.done("one more")
    assert "one more" in stream.getvalue()


def test_on_a_terminal_there_is_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Counter(2, "trials", stream) as counter:
        counter.doing("[the first]")
        counter.done("trial 0 reached 1.0")
    assert "1/2" in stream.getvalue() and "trial 0 reached 1.0" in stream.getvalue()


def test_a_table_shows_every_cell_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "number", "remark"), [("a", "1,000", "[x]"), ("b", "–", "")], "All")
    lines = capsys.readouterr().out.splitlines()
    assert "All" in lines[0] and any("a" in line and "1,000   [x]" in line for line in lines)
    assert all(line == line.rstrip() for line in lines)
