"""Whatever an env raises becomes an error that can be caught, read, copied and sent on."""

from __future__ import annotations

import copy
import pickle
import subprocess
import threading
import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from rookery import EnvFailed, WorkerDied
from rookery.common.env_errors import describe, env_failed, in_words, shortened
from rookery.worker.failures import Failure

CONTEXT: dict[str, Any] = {
    "env_name": "Foo-v0",
    "env_id": 3,
    "command": "step",
    "seed": 5,
    "steps_since_reset": 17,
    "last_action": [1, 2],
}


class Coded(ValueError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.cause_type = "theirs"


class Unprintable(RuntimeError):
    def __str__(self) -> str:
        raise KeyError("no words")

    __repr__ = __str__


class SaysNoString(RuntimeError):
    def __str__(self) -> Any:
        return 3


class WithSeed(RuntimeError):
    @property
    def seed(self) -> int:
        return 99


class Custom(BaseException):
    pass


@dataclass(frozen=True)
class Frozen(Exception):
    command: str = "theirs"


def _failed(cause: BaseException, **context: Any) -> EnvFailed:
    return env_failed(cause, **{**CONTEXT, **context})


def _assert_whole(error: EnvFailed) -> None:
    assert type(error).__name__ == "EnvFailed"
    assert (error.env_ids, error.env_name, error.command) == ((3,), "Foo-v0", "step")
    assert (error.seed, error.steps_since_reset, error.last_action) == (5, 17, [1, 2])
    assert str(error).startswith("Env 3 (Foo-v0) raised ")


CAUSES = [
    ValueError("bad"),
    KeyError("key"),
    Coded(7, "coded"),
    OSError(2, "no such file", "name"),
    UnicodeDecodeError("utf-8", b"\xff" * 5000, 3000, 3001, "invalid"),
    subprocess.CalledProcessError(3, "make"),
    Unprintable("x"),
    SaysNoString("x"),
    WithSeed("x"),
    Frozen(),
    StopIteration(4),
    SystemExit(2),
    KeyboardInterrupt(),
    GeneratorExit(),
    Custom("own"),
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
def test_any_exception_becomes_an_error_that_survives_pickling_and_copying(
    cause: BaseException,
) -> None:
    error = _failed(cause)
    _assert_whole(error)
    assert type(cause).__name__ in str(error)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        _assert_whole(twin)
        assert str(twin) == str(error) and type(twin).__mro__[1:] == type(error).__mro__[1:]
    assert copy.copy(error).__cause__ is cause


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
def test_any_exception_travels_from_a_worker(cause: BaseException) -> None:
    failure = pickle.loads(pickle.dumps(Failure.of(_failed(cause))))
    error = failure.error()
    _assert_whole(error)
    assert type(cause).__name__ in failure.remote_traceback
    assert type(error.__cause__) is type(cause)
    assert vars(error.__cause__).keys() >= vars(cause).keys()


def test_code_that_expects_the_envs_own_type_finds_its_attributes() -> None:
    with pytest.raises(Coded) as coded:
        raise _failed(Coded(7, "coded"))
    assert coded.value.code == 7
    with pytest.raises(OSError) as missing:
        raise pickle.loads(pickle.dumps(_failed(OSError(2, "no such file", "name"))))
    assert (missing.value.errno, missing.value.filename) == (2, "name")


def test_a_type_that_nobody_can_import_is_left_out_of_the_pickle() -> None:
    class Local(ValueError):
        pass

    error = _failed(Local("x"))
    assert isinstance(error, Local) and isinstance(copy.copy(error), Local)
    twin = pickle.loads(pickle.dumps(error))
    _assert_whole(twin)
    assert not isinstance(twin, ValueError)


def test_what_cannot_be_pickled_is_described_in_its_place() -> None:
    lock = threading.Lock()
    for error in (_failed(ValueError("x"), last_action=lock), WorkerDied("x", last_action=lock)):
        assert "lock" in pickle.loads(pickle.dumps(error)).last_action
        assert error.last_action is lock


def test_an_exception_that_cannot_be_printed_is_named() -> None:
    assert describe(Unprintable()) == "(Unprintable cannot be printed: its __str__ fails)"
    assert "cannot be printed" in str(_failed(Unprintable()))
    assert in_words(Unprintable()) == "<a Unprintable whose __repr__ fails>"
    assert "action <a Unprintable" in str(_failed(ValueError(), last_action=Unprintable()))


def test_a_long_text_loses_its_middle_and_says_so() -> None:
    text = "".join(chr(97 + i % 26) for i in range(10_000))
    cut = shortened(text, 1000)
    assert cut.startswith(text[:750]) and cut.endswith(text[-250:])
    assert "[... 9000 characters cut ...]" in cut and len(cut) < 1050
    assert shortened(text, 10_000) is text


def test_megabytes_of_text_are_cut_throughout_the_chain() -> None:
    huge = "x" * 5_000_000
    try:
        try:
            raise KeyError(huge)
        except KeyError as inner:
            raise RuntimeError("outer", huge) from inner
    except RuntimeError as error:
        cause = error
    error = _failed(cause)
    assert len(str(error)) < 2_300 and "characters cut" in str(error)
    printed = "".join(traceback.format_exception(error))
    assert len(printed) < 50_000
    failure = Failure.of(error)
    assert len(pickle.dumps(failure)) < 100_000
    assert len("".join(traceback.format_exception(failure.error()))) < 100_000


def test_a_message_that_can_be_read_is_whole_in_the_cause() -> None:
    text = "line of a compiler\n" * 300
    error = _failed(RuntimeError(text))
    assert len(str(error)) < 2_300 and str(error.__cause__) == text


@pytest.mark.parametrize(
    ("steps", "words"), [(None, "never reset"), (0, "0 steps after"), (1, "1 step after its reset")]
)
def test_the_message_says_how_far_the_episode_was(steps: int | None, words: str) -> None:
    assert words in str(_failed(ValueError("x"), steps_since_reset=steps))
