"""Finding: one line of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "fail"]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: what was looked at.
        verdict: ``"ok"``, ``"note"`` (good to know) or ``"fail"`` (would break a run).
        detail: what was seen.
        way_out: what to do about it; empty if nothing needs to be done.
    """

    check: str
    verdict: Verdict
    detail: str
    way_out: str = ""

    def __str__(self) -> str:
        way_out = f" -> {self.way_out}" if self.way_out else ""
        return f"{self.verdict:4}  {self.check}: {self.detail}{way_out}"
