"""Plot of env steps per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from rookery.bench.throughput import Limit, Row, rate_text
from rookery.run.log.curve import new_figure, plain

_OURS, _PEERS, _LIMIT = "tab:blue", "tab:gray", "tab:green"
_BAR_INCHES, _ROOM_INCHES = 0.32, 1.3
_ROOM = 1.45  # width of the axes relative to the longest bar, for the text behind bars


def draw_throughput(
    file: BinaryIO, title: str, rows: Sequence[Row], limits: Mapping[int, Limit]
) -> None:
    """Draw bars of env steps per second, one panel for each number of envs.

    The text behind each bar gives its speed-up over serial and its share of the limit. The limit is
    a dashed line. Error bars span all samples.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    numbers = list(dict.fromkeys(row.num_envs for row in rows))
    most = max(sum(row.num_envs == n for row in rows) for n in numbers)
    figure = new_figure((8.5, len(numbers) * (_ROOM_INCHES + _BAR_INCHES * most)))
    for place, num_envs in enumerate(numbers, 1):
        axes = figure.add_subplot(len(numbers), 1, place)
        chosen = [row for row in rows if row.num_envs == num_envs]
        _draw_bars(axes, chosen, limits.get(num_envs))
        limit = limits.get(num_envs)
        best = "" if limit is None else f" (limit {limit.steps_per_second:,.0f} steps/s)"
        axes.set_title(plain(f"{title}, {num_envs} envs{best}"), fontsize="medium", loc="left")
        axes.set_xlabel("environment steps per second", fontsize="small")
    figure.savefig(file, format="png")


def _draw_bars(axes: Any, rows: Sequence[Row], limit: Limit | None) -> None:
    rows = rows[::-1]  # the first one is on top
    medians = [row.median or 0.0 for row in rows]
    spread = [
        [m - (row.low or 0.0) for m, row in zip(medians, rows, strict=True)],
        [(row.high or 0.0) - m for m, row in zip(medians, rows, strict=True)],
    ]
    colors = [_OURS if row.contender.startswith("rookery") else _PEERS for row in rows]
    names = [row.contender for row in rows]
    axes.barh(names, medians, color=colors, alpha=0.8)
    axes.errorbar(
        medians, names, xerr=spread, fmt="none", ecolor="black", elinewidth=1, capsize=2
    )  # fmt: skip
    longest = max([*(row.high or 0.0 for row in rows), 1e-9])
    if limit is not None and limit.steps_per_second < 2 * longest:
        label = f"limit: {limit.steps_per_second:,.0f}"
        axes.axvline(limit.steps_per_second, color=_LIMIT, linestyle="--", label=label)
        axes.legend(loc="lower right", fontsize="small")
        longest = max(longest, limit.steps_per_second)
    for place, row in enumerate(rows):
        at = (row.high or 0.0) + 0.01 * longest
        axes.text(
            at, place, _remark(row), va="center", fontsize="x-small", backgroundcolor="#ffffffcc"
        )
    axes.set_xlim(0, _ROOM * longest)
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3, axis="x")


def _remark(row: Row) -> str:
    if row.median is None:
        return plain(f"failed: {row.failure[:70]}")
    parts = [rate_text(row.median)]
    if row.speed_up is not None:
        parts.append(f"{row.speed_up:.2f}x serial")
    if row.share is not None:
        parts.append(f"{row.share:.0%} of the limit")
    return ", ".join(parts)
