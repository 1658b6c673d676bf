"""The limits of the messaging guard: defaults, variables of the environment, invalid values."""

from typing import Any

import pytest

from waypost import InvalidSettings, MessagingGuardConfig, load_messaging_guard_config
from waypost.policy.guard import invalid_guard_variables

VARIABLES = {
    "AGENT_CB_FAILURE_THRESHOLD": "failure_threshold",
    "AGENT_CB_RESET_TIMEOUT_MS": "reset_timeout_ms",
    "AGENT_CB_SUCCESS_THRESHOLD": "success_threshold",
    "AGENT_RATE_LIMIT_PER_MIN": "rate_limit_per_window",
}


def test_the_defaults() -> None:
    assert load_messaging_guard_config({}) == MessagingGuardConfig(
        failure_threshold=5,
        reset_timeout_ms=30_000,
        success_threshold=2,
        rate_limit_per_window=10,
        rate_limit_window_ms=60_000,
    )


@pytest.mark.parametrize(("variable", "field"), VARIABLES.items())
def test_a_variable_sets_its_field_and_no_other(variable: str, field: str) -> None:
    loaded = load_messaging_guard_config({variable: " 77 ", "UNRELATED": "5"})
    assert loaded == MessagingGuardConfig(**{field: 77})


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    "value",
    ["", " ", "0", "-5", "abc", "2.5", "1e3", "10abc", "NaN", "1_000", "٣", "²", "9" * 5000],
)
def test_a_value_that_makes_no_sense_falls_back_to_the_default(variable: str, value: str) -> None:
    assert load_messaging_guard_config({variable: value}) == MessagingGuardConfig()


def test_one_bad_variable_does_not_affect_the_others() -> None:
    env = {"AGENT_CB_FAILURE_THRESHOLD": "no", "AGENT_RATE_LIMIT_PER_MIN": "3"}
    assert load_messaging_guard_config(env) == MessagingGuardConfig(rate_limit_per_window=3)


def test_invalid_variables_are_named_with_what_is_used_instead() -> None:
    env = {"AGENT_CB_RESET_TIMEOUT_MS": "soon", "AGENT_RATE_LIMIT_PER_MIN": "0"}
    assert invalid_guard_variables(env) == [
        "AGENT_CB_RESET_TIMEOUT_MS='soon' is not a whole number of 1 or more: 30000 is used",
        "AGENT_RATE_LIMIT_PER_MIN='0' is not a whole number of 1 or more: 10 is used",
    ]


def test_unset_empty_and_valid_variables_are_not_invalid() -> None:
    env = {"AGENT_CB_RESET_TIMEOUT_MS": " ", "AGENT_RATE_LIMIT_PER_MIN": " 3 "}
    assert invalid_guard_variables(env) == []


def test_a_long_value_is_shown_in_part() -> None:
    [text] = invalid_guard_variables({"AGENT_RATE_LIMIT_PER_MIN": "9" * 5000})
    assert len(text) < 200


@pytest.mark.parametrize("value", [0, -1, 2.5, "5", None, True])
def test_a_configuration_made_in_python_is_validated(value: Any) -> None:
    with pytest.raises(InvalidSettings, match="reset_timeout_ms"):
        MessagingGuardConfig(reset_timeout_ms=value)
