"""`Retry`: what is made again, how often, and after which pauses of the loop's clock."""

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from tenacity import RetryCallState, stop_after_attempt, stop_after_delay, stop_before_delay, wait_fixed, wait_none

from structable.access.metrics import Instruments
from structable.access.retrying import Retrier, Retry, caused_by
from structable.spi import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    UnsupportedOperationError,
)

from .support.fake_clock import run

NEVER = [
    RecordNotFoundError("t", ("a",)),
    RecordExistsError("t", ("a",)),
    InvalidFieldError("t", "f", "is wrong"),
    CommitOutcomeUnknownError("lost"),
    UnsupportedOperationError("no"),
]


class Flaky:
    """A call that fails with each of `errors` in turn, and succeeds then."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    @property
    def pauses(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def _never(error: BaseException) -> bool:
    return False


def _run(policy: Retry, call: Flaky, is_retriable: Callable[[BaseException], bool] = _never) -> str:
    async def main() -> str:
        return await Retrier(policy, is_retriable, Instruments("t")).run("get", call)

    return run(main())


def test_first_success_is_the_only_call() -> None:
    call = Flaky()
    assert _run(Retry(when=Exception), call) == "done"
    assert len(call.times) == 1


def test_error_of_a_class_is_retried_and_others_are_raised_at_once() -> None:
    assert _run(Retry(when=OSError), Flaky(ConnectionError(), TimeoutError())) == "done"
    assert _run(Retry(when=(KeyError, OSError)), Flaky(KeyError("k"), OSError())) == "done"
    call = Flaky(OSError(), KeyError("k"))
    with pytest.raises(KeyError):
        _run(Retry(when=OSError), call)
    assert len(call.times) == 2


def test_predicate_and_source_are_both_asked() -> None:
    policy = Retry(when=lambda error: "again" in str(error))
    assert _run(policy, Flaky(ValueError("again"), OSError()), lambda error: isinstance(error, OSError)) == "done"
    with pytest.raises(ValueError, match="never"):
        _run(policy, Flaky(ValueError("never")))


def test_without_when_the_source_alone_decides() -> None:
    assert _run(Retry(), Flaky(OSError()), lambda error: True) == "done"
    with pytest.raises(OSError):  # noqa: PT011
        _run(Retry(), Flaky(OSError()))


@pytest.mark.parametrize("error", NEVER, ids=lambda error: type(error).__name__)
def test_error_that_another_call_cannot_mend_is_never_retried(error: Exception) -> None:
    call = Flaky(error)
    with pytest.raises(type(error)):
        _run(Retry(when=Exception), call, lambda error: True)
    assert len(call.times) == 1


def test_error_raised_from_one_that_is_never_retried_is_not_either() -> None:
    wrapped = OSError("remote")
    wrapped.__cause__ = ValueError("between")
    wrapped.__cause__.__cause__ = RecordNotFoundError("t", ("a",))
    call = Flaky(wrapped)
    with pytest.raises(OSError, match="remote"):
        _run(Retry(when=OSError), call)
    assert len(call.times) == 1


def test_causes_that_form_a_circle_end() -> None:
    one, other = OSError(), ValueError()
    one.__cause__, other.__cause__ = other, one
    assert not caused_by(one, KeyError)
    assert caused_by(one, ValueError)


def test_cancellation_is_no_failure() -> None:
    call = Flaky(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        _run(Retry(when=Exception), call, lambda error: True)
    assert len(call.times) == 1


def test_pauses_and_times_are_the_loops() -> None:
    call = Flaky(*(OSError() for _ in range(3)))
    assert _run(Retry(when=OSError, wait=wait_fixed(7.0), stop=stop_after_delay(100)), call) == "done"
    assert call.pauses == [7.0] * 3
    call = Flaky(*(OSError() for _ in range(9)))
    with pytest.raises(OSError):  # noqa: PT011
        _run(Retry(when=OSError, wait=wait_fixed(7.0), stop=stop_after_delay(20)), call)
    assert len(call.times) == 4
    call = Flaky(*(OSError() for _ in range(9)))
    with pytest.raises(OSError):  # noqa: PT011
        _run(Retry(when=OSError, wait=wait_fixed(7.0), stop=stop_before_delay(20)), call)
    assert len(call.times) == 3


def test_default_is_ten_calls_with_pauses_of_10_ms_to_1_s() -> None:
    call = Flaky(*(OSError(str(number)) for number in range(1, 99)))
    with pytest.raises(OSError, match=r"^10") as caught:
        _run(Retry(when=OSError), call)
    assert len(call.times) == 10
    assert all(0.0099 <= pause <= 1.0001 for pause in call.pauses)
    assert len(set(call.pauses)) == 9
    assert "after 10 in" in caught.value.__notes__[0]


def test_default_makes_no_call_after_30_seconds() -> None:
    call = Flaky(*(OSError() for _ in range(9)))
    with pytest.raises(OSError):  # noqa: PT011
        _run(Retry(when=OSError, wait=wait_fixed(12.0)), call)
    assert len(call.times) == 4


def test_strategies_see_what_tenacity_shows_them() -> None:
    seen: list[tuple[int, float, float | None, str]] = []

    def wait(state: RetryCallState) -> float:
        assert state.outcome is not None
        seen.append((state.attempt_number, state.idle_for, state.seconds_since_start, str(state.outcome.exception())))
        return 2.0

    call = Flaky(OSError("a"), OSError("b"))
    assert _run(Retry(when=OSError, wait=wait, stop=stop_after_attempt(5)), call) == "done"
    assert seen == [(1, 0.0, 0.0, "a"), (2, 2.0, 2.0, "b")]


def test_calls_of_one_policy_do_not_share_attempts() -> None:
    async def main() -> None:
        retrier = Retrier(Retry(when=OSError, stop=stop_after_attempt(3), wait=wait_none()), _never, Instruments("t"))
        calls = [Flaky(OSError(), OSError()) for _ in range(20)]
        assert await asyncio.gather(*(retrier.run("get", call) for call in calls)) == ["done"] * 20

    run(main())


def test_errors_are_released() -> None:
    async def main() -> None:
        class Referable(OSError):
            pass

        errors = [Referable(), Referable()]
        kept = [weakref.ref(error) for error in errors]
        call = Flaky(*errors)
        errors.clear()
        await Retrier(Retry(when=OSError, wait=wait_none()), _never, Instruments("t")).run("get", call)
        assert [error() for error in kept] == [None, None]

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


@pytest.mark.parametrize("when", ["OSError", 3, KeyboardInterrupt, (OSError, "x"), int])
def test_wrong_when_is_refused(when: object) -> None:
    with pytest.raises(TypeError, match="when"):
        Retry(when=when)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stop", "wait"])
@pytest.mark.parametrize("strategy", [3, "x", stop_after_attempt])
def test_wrong_strategy_is_refused(name: str, strategy: object) -> None:
    with pytest.raises(TypeError, match=name):
        Retry(**{name: strategy})  # type: ignore[arg-type]
