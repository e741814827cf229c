"""Settings of the watchdog from the environment: COLLECTIVE_TIMEOUT, COLLECTIVE_ABORT and COLLECTIVE_CHECK."""

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
    """An environment variable with an invalid value."""


@dataclass(frozen=True)
class WatchSettings:
    """Settings of the watchdog.

    ``timeout`` is in seconds, after which a blocked call is reported (0: never); ``abort`` makes the report end all
    processes; ``check`` makes processes compare their calls at each collective.
    """

    timeout: float = DEFAULT_TIMEOUT
    abort: bool = False
    check: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WatchSettings:
        """Return the settings in ``environment``, with defaults; SettingError for an invalid value."""
        timeout = environment.get(TIMEOUT_VARIABLE)
        try:
            seconds = DEFAULT_TIMEOUT if timeout is None else seconds_from(timeout)
        except ValueError as error:
            raise SettingError(f"{TIMEOUT_VARIABLE}={timeout}: {error}") from None
        return cls(seconds, _switch(environment, ABORT_VARIABLE), _switch(environment, CHECK_VARIABLE))


def check_alike(checks: Sequence[bool]) -> None:
    """Raise SettingError unless checks are enabled on all processes or on none; ``checks`` has one entry per process.

    A process with checks would wait for ever for those without.
    """
    on, off = ([process for process, check in enumerate(checks) if check is each] for each in (True, False))
    if on and off:
        text = f"{CHECK_VARIABLE} is on in processes {short_list(on)} and off in {short_list(off)}"
        raise SettingError(f"{text}: set it to the same in all of them")


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name)
    if text is not None and text.strip().lower() not in _YES | _NO:
        raise SettingError(f"{name}={text}: must be 1 or 0 (or true, false, yes, no, on, off)")
    return text is not None and text.strip().lower() in _YES


def seconds_from(text: str) -> float:
    """Return a non-negative number of seconds from ``text``; ValueError for any other text."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise ValueError("must be a number of seconds, 0 for never")
    return seconds
