"""Throughput of contenders, relative to serial stepping and to the machine's limit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rookery.bench.contenders import LOOP, SERIAL
from rookery.bench.sample import Measured


@dataclass(frozen=True)
class Row:
    """The result of one contender with a number of envs.

    Attributes:
        contender: name of the contender.
        num_envs: number of envs.
        median: median env steps per second; None without samples.
        low: smallest sample.
        high: largest sample.
        speed_up: speed-up over rookery's serial backend, median over the rounds.
        share: median as a share of the limit.
        samples: all samples, by round.
        failure: reason why sampling stopped; empty without a failure.
        note: remark for comparisons with other contenders.
    """

    contender: str
    num_envs: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    speed_up: float | None = None
    share: float | None = None
    samples: tuple[float, ...] = ()
    failure: str = ""
    note: str = ""


@dataclass(frozen=True)
class Limit:
    """The highest possible throughput of single envs on this machine.

    Attributes:
        num_envs: number of envs.
        wall_s: wall time of a step in a plain loop, in seconds.
        cpu_s: CPU time of a step in a plain loop, in seconds.
        steps_per_second: the limit, see `limit_of`.
    """

    num_envs: int
    wall_s: float
    cpu_s: float
    steps_per_second: float


def limit_of(num_envs: int, wall_s: float, cpu_s: float, cores: float) -> float:
    """Return the env steps per second if all cores only stepped envs.

    The cores allow ``cores / cpu_s``. Each env allows at most ``1 / wall_s``, which limits few envs
    and envs that wait.
    """
    most_per_env = num_envs / wall_s
    return min(most_per_env, cores / cpu_s) if cpu_s > 0 else most_per_env


def limits_of(measured: Sequence[Measured], cores: float) -> dict[int, Limit]:
    """Return the limit for each number of envs with samples of the plain loop."""
    limits = {}
    for each in measured:
        if each.order.contender.name == LOOP and each.samples:
            wall_s, cpu_s = (
                statistics.median(each.values(name).values()) for name in ("wall_s", "cpu_s")
            )
            num_envs = each.order.num_envs
            limits[num_envs] = Limit(
                num_envs, wall_s, cpu_s, limit_of(num_envs, wall_s, cpu_s, cores)
            )
    return limits


def rows_of(measured: Sequence[Measured], limits: dict[int, Limit]) -> list[Row]:
    """Return one row for each contender but the plain loop, in the order of ``measured``."""
    serial = {
        each.order.num_envs: each.values()
        for each in measured
        if each.order.contender.name == SERIAL
    }
    rows = []
    for each in measured:
        contender, num_envs = each.order.contender, each.order.num_envs
        if contender.name != LOOP:
            limit = limits.get(num_envs)
            best = None if limit is None else limit.steps_per_second
            row = _row(each, serial.get(num_envs, {}), best)
            rows.append(row)
    return rows


def _row(measured: Measured, serial: dict[int, float], limit: float | None) -> Row:
    order, values = measured.order, measured.values()
    known = {
        "contender": order.contender.name, "num_envs": order.num_envs,
        "failure": measured.failure, "note": order.contender.note,
    }  # fmt: skip
    if not values:
        return Row(**known)  # type: ignore[arg-type]
    median = statistics.median(values.values())
    return Row(
        **known,  # type: ignore[arg-type]
        median=median,
        low=min(values.values()),
        high=max(values.values()),
        speed_up=ratio_of(values, serial),
        share=None if limit is None else median / limit,
        samples=tuple(values.values()),
    )


def ratio_of(above: dict[int, float], below: dict[int, float]) -> float | None:
    """Return the median ratio over common rounds, as disturbances of a round affect both."""
    ratios = [above[turn] / below[turn] for turn in above if turn in below]
    return statistics.median(ratios) if ratios else None


def table_of(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return rows of cells: contender, steps per second, spread, speed-up, share, remarks."""
    return [
        (
            row.contender,
            rate_text(row.median),
            "" if row.low is None else f"{rate_text(row.low)} – {rate_text(row.high)}",
            "" if row.speed_up is None else f"{row.speed_up:.2f}x",
            "" if row.share is None else f"{row.share:.0%}",
            f"failed: {row.failure}" if row.failure else row.note,
        )
        for row in rows
    ]


def to_dict(rows: Sequence[Row], limits: dict[int, Limit]) -> list[dict[str, Any]]:
    """Return limits and contenders for each number of envs as JSON data."""
    numbers = dict.fromkeys(row.num_envs for row in rows)
    return [
        {
            "num_envs": num_envs,
            "limit": asdict(limits[num_envs]) if num_envs in limits else None,
            "contenders": [
                {**asdict(row), "samples": list(row.samples)}
                for row in rows
                if row.num_envs == num_envs
            ],
        }
        for num_envs in numbers
    ]


def rate_text(value: float | None) -> str:
    """Return steps per second as text."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
