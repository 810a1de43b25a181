"""What is chosen from a product of parameters."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from pairs import every_pair

Rows = list[tuple[int, ...]]


def _product(*sizes: int) -> Rows:
    return list(product(*map(range, sizes)))


def _pairs(rows: Rows) -> set[object]:
    return {pair for row in rows for pair in combinations(enumerate(row), 2)}


@pytest.mark.parametrize("sizes", [(14, 7, 3, 2), (2, 2, 2, 2, 2), (3, 5, 4), (1, 4, 4)])
def test_every_two_values_meet_in_far_fewer_rows(sizes: tuple[int, ...]) -> None:
    rows = _product(*sizes)
    chosen = [rows[i] for i in every_pair(rows)]
    assert _pairs(chosen) == _pairs(rows)
    first, second = sorted(sizes)[-2:]
    assert first * second <= len(chosen) < 2 * first * second
    assert len(chosen) < len(rows) or 1 in sizes


def test_pairs_that_stand_in_no_row_are_not_missed() -> None:
    rows = [row for row in _product(3, 3, 3) if row[0] != row[1]]
    chosen = [rows[i] for i in every_pair(rows)]
    assert _pairs(chosen) == _pairs(rows)


def test_one_or_two_parameters_lose_nothing() -> None:
    for rows in (_product(4), _product(3, 4)):
        assert every_pair(rows) == list(range(len(rows)))


def test_without_parameters_there_is_nothing_to_choose() -> None:
    assert every_pair([]) == []


def test_the_choice_is_always_the_same_and_in_order() -> None:
    rows = _product(4, 3, 3)
    chosen = every_pair(rows)
    assert chosen == every_pair(list(rows)) == sorted(set(chosen))


def _by_name(result: pytest.RunResult) -> list[str]:
    return sorted(line.split("::")[1] for line in result.outlines if "::" in line)


@pytest.fixture
def collect(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """Collect a test file under this suite's conftest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed, and some are slow
    folder = request.path.parent
    pytester.makeconftest((folder / "conftest.py").read_text())
    pytester.makepyfile(pairs=(folder / "pairs.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n peer: x\n slow: x\n whole: x\n")
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.parametrize("a", [1, 2])
        @pytest.mark.parametrize("b", [1, 2])
        @pytest.mark.parametrize("c", [1, 2])
        def test_product(a, b, c): pass

        @pytest.mark.parametrize("who", ["ours", pytest.param("theirs", marks=pytest.mark.peer)])
        def test_peer(who): pass

        @pytest.mark.parametrize("how", ["once", pytest.param("again", marks=pytest.mark.whole)])
        def test_proved(how): pass

        @pytest.mark.slow
        def test_long(): pass

        def test_plain(): pass
        """
    )

    def names(*options: str) -> list[str]:
        return _by_name(
            pytester.runpytest_subprocess(
                "--collect-only", "-q", "-p", "no:cacheprovider", *options
            )
        )

    return names


def test_by_default_the_suite_runs_pairs_and_no_tests_of_peers(collect) -> None:
    names = collect()
    assert 4 <= len([name for name in names if "product" in name]) < 8
    others = [name for name in names if "product" not in name]
    assert others == ["test_peer[ours]", "test_plain", "test_proved[once]"]


def test_the_whole_product_runs_on_request(collect) -> None:
    names = collect("--whole")
    assert len([name for name in names if "product" in name]) == 8
    assert {"test_peer[theirs]", "test_proved[again]"} <= set(names)


def test_slow_tests_run_on_request_and_where_something_was_chosen(collect) -> None:
    assert "test_long" in collect("--slow")
    assert "test_long" in collect("test_it.py")
    assert collect("-k", "long") == ["test_long"]


def test_a_test_that_is_named_runs_in_any_case(collect) -> None:
    assert collect("test_it.py::test_product[2-2-2]") == ["test_product[2-2-2]"]
    assert collect("-k", "product and 2-2-2") == ["test_product[2-2-2]"]
    assert collect("test_it.py::test_peer[theirs]") == ["test_peer[theirs]"]
