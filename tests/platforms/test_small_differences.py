"""What differs between platforms in a single place."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.run.checkpoint import run_dir
from rookery.worker import pipes
from rookery.worker.failures import exit_in_words
from rookery.worker.start import limits


@pytest.mark.parametrize("refusals", [0, 3, 1000])
def test_a_file_that_is_read_is_replaced_once_windows_allows_it(
    refusals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [refusals]

    def replace(source: Path, target: Path) -> None:
        if left[0]:
            left[0] -= 1
            raise PermissionError(errno.EACCES, "Access is denied", str(target))
        os.rename(source, target)

    monkeypatch.setattr(run_dir, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(run_dir, "os", SimpleNamespace(replace=replace))
    monkeypatch.setattr(run_dir, "time", SimpleNamespace(sleep=lambda _: None))
    new, old = tmp_path / "new", tmp_path / "old"
    new.write_text("new")
    old.write_text("old")
    if refusals == 1000:
        with pytest.raises(PermissionError):
            run_dir.put_in_place(new, old)
        assert (old.read_text(), new.read_text()) == ("old", "new")
    else:
        run_dir.put_in_place(new, old)
        assert old.read_text() == "new"


def test_an_exit_code_of_windows_is_told_in_words() -> None:
    assert exit_in_words(0xC0000005).endswith("access violation), a crash in native code")
    assert exit_in_words(3) == "exited with exit code 3"


def test_a_paging_file_that_is_too_small_is_named() -> None:
    error = OSError(errno.EINVAL, "The paging file is too small")
    assert "RAM and paging file" not in str(limits.start_failed(error))
    error.winerror = 1455  # type: ignore[attr-defined]
    assert "RAM and paging file" in str(limits.start_failed(error))


@pytest.mark.skipif(sys.platform == "win32", reason="an error of Windows is imitated")
def test_a_wait_that_windows_has_cut_short_found_nothing() -> None:
    def poll(_timeout: float) -> Any:
        raise InterruptedError(errno.EINTR, "Interrupted system call")

    assert not pipes.can_read(SimpleNamespace(poll=poll), 1.0)  # type: ignore[arg-type]
