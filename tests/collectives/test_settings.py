"""The variables of the environment that watching over waits reads."""

import pytest

from collectives.settings import SettingError, WatchSettings


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (60.0, False)),
        ({"COLLECTIVE_TIMEOUT": "0"}, (0.0, False)),
        ({"COLLECTIVE_TIMEOUT": "2.5", "COLLECTIVE_ABORT": "1"}, (2.5, True)),
        ({"COLLECTIVE_ABORT": "true"}, (60.0, True)),
        ({"COLLECTIVE_ABORT": "false"}, (60.0, False)),
        ({"COLLECTIVE_ABORT": "No"}, (60.0, False)),
        ({"COLLECTIVE_ABORT": "0"}, (60.0, False)),
    ],
)
def test_what_is_said(environment: dict[str, str], expected: tuple[float, bool]) -> None:
    settings = WatchSettings.from_environment(environment)
    assert (settings.timeout, settings.abort) == expected


@pytest.mark.parametrize("text", ["abc", "", "-1", "nan", "inf", "1e999", "5s", "-inf"])
def test_a_timeout_that_is_no_number_of_seconds(text: str) -> None:
    with pytest.raises(SettingError, match=f"^COLLECTIVE_TIMEOUT={text}: must be a number of seconds"):
        WatchSettings.from_environment({"COLLECTIVE_TIMEOUT": text})


@pytest.mark.parametrize("text", ["", "maybe", "2", "-1"])
@pytest.mark.parametrize("name", ["COLLECTIVE_ABORT", "COLLECTIVE_CHECK"])
def test_a_switch_that_is_neither_yes_nor_no(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}={text}: must be 1 or 0"):
        WatchSettings.from_environment({name: text})


def test_a_check_is_asked_for_by_itself() -> None:
    assert WatchSettings.from_environment({"COLLECTIVE_CHECK": "1"}) == WatchSettings(60.0, abort=False, check=True)
