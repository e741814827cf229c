"""What the environment says of watching over waits: COLLECTIVE_TIMEOUT, COLLECTIVE_ABORT and COLLECTIVE_CHECK, read
strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from collectives.errors import CommunicationError
from collectives.states import short_list

TIMEOUT_VARIABLE = "COLLECTIVE_TIMEOUT"
ABORT_VARIABLE = "COLLECTIVE_ABORT"
CHECK_VARIABLE = "COLLECTIVE_CHECK"
DEFAULT_TIMEOUT = 60.0

_YES = frozenset(("1", "true", "yes", "on"))
_NO = frozenset(("0", "false", "no", "off"))


class SettingError(CommunicationError, ValueError):
    """A variable of the environment that says nothing sensible."""


@dataclass(frozen=True)
class WatchSettings:
    """After how many seconds a wait is told (0: never), whether it then ends all processes, and whether processes
    compare what they are about to do at each collective."""

    timeout: float = DEFAULT_TIMEOUT
    abort: bool = False
    check: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WatchSettings:
        """What the variables say, or the defaults where they are not set. SettingError where one cannot be read."""
        timeout = environment.get(TIMEOUT_VARIABLE)
        try:
            seconds = DEFAULT_TIMEOUT if timeout is None else seconds_from(timeout)
        except ValueError as error:
            raise SettingError(f"{TIMEOUT_VARIABLE}={timeout}: {error}") from None
        return cls(seconds, _switch(environment, ABORT_VARIABLE), _switch(environment, CHECK_VARIABLE))


def check_alike(checks: Sequence[bool]) -> None:
    """SettingError unless all processes or none compare their collectives; `checks` are what each is set to.

    One that compares would wait for ever for what the others do not send.
    """
    on, off = ([process for process, check in enumerate(checks) if check is each] for each in (True, False))
    if on and off:
        text = f"{CHECK_VARIABLE} is on in processes {short_list(on)} and off in {short_list(off)}"
        raise SettingError(f"{text}: set it to the same in all of them")


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name)
    if text is not None and text.strip().lower() not in _YES | _NO:
        raise SettingError(f"{name}={text}: 1 or 0 is needed (or true, false, yes, no, on, off)")
    return text is not None and text.strip().lower() in _YES


def seconds_from(text: str) -> float:
    """A number of seconds that is not negative. ValueError, with what is needed, for any other text."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise ValueError("a number of seconds is needed, 0 for never")
    return seconds
