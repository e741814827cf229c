"""What a program is, to the verifier."""

import pytest

import spmd


def assert_verifies(text: str, fault: str) -> None:
    """The program is sound, or refused for what has `fault` in it, where that is not empty."""
    if not fault:
        spmd.parse(text)
        return
    with pytest.raises(spmd.VerificationError) as refused:
        spmd.parse(text)
    assert fault in str(refused.value)
