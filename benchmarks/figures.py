"""Figures that are computed from the samples of a case."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks import results
from benchmarks.results import CaseJson

Figure = Callable[[CaseJson], "float | None"]


def ratio(above: str, below: str, metric: str = "steps_per_second") -> Figure:
    """Median of ``above / below`` over the repetitions."""
    return lambda case: results.median_ratio(case, above, below, metric)


def ratio_of_fastest(above: tuple[str, ...], below: tuple[str, ...]) -> Figure:
    """The same for seconds, with the fastest of several settings above and below."""

    def figure(case: CaseJson) -> float | None:
        fastest = [_fastest(case, names) for names in (above, below)]
        if None in fastest:
            return None
        return results.median_ratio(case, str(fastest[0]), str(fastest[1]), "seconds")

    return figure


def _fastest(case: CaseJson, contenders: tuple[str, ...]) -> str | None:
    """Which of them took the fewest seconds, or None if none was measured."""
    medians = {name: results.median(case, name, "seconds") for name in contenders}
    measured = {name: seconds for name, seconds in medians.items() if seconds is not None}
    return min(measured, key=measured.__getitem__, default=None)


def median_of(contender: str, metric: str) -> Figure:
    """Median of a contender's metric."""
    return lambda case: results.median(case, contender, metric)


def ratio_of_means(above: tuple[str, ...], below: tuple[str, ...], metric: str) -> Figure:
    """Mean over all samples of some contenders, by that of others."""

    def figure(case: CaseJson) -> float | None:
        numerators, denominators = (
            [sample for name in names for sample in results.values(case, name, metric)]
            for names in (above, below)
        )
        if not numerators or not denominators:
            return None
        return statistics.fmean(numerators) / statistics.fmean(denominators)

    return figure


def total_of(contender: str, metric: str) -> Figure:
    """Sum of a contender's metric over the repetitions."""

    def figure(case: CaseJson) -> float | None:
        samples = results.values(case, contender, metric)
        return sum(samples) if samples else None

    return figure
