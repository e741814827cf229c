"""Mistakes of communication in JAX functions are found when they are traced, at their line; right functions pass."""

import warnings

import pytest

import spmd.jax
from spmd import CollectiveError
from spmd.jax import CommunicationWarning
from tests.jax.mistakes import MISTAKES, Mistake


def traced(mistake: Mistake, wrong: bool) -> str:
    """The message of what is found; none where nothing is."""
    declared = dict(mistake.declared)
    if declared.get("replicated") is True:
        declared["replicated"] = tuple(range(len(mistake.arguments)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CommunicationWarning)
        try:
            spmd.jax.jit(mistake.build(wrong), axes=mistake.axes, **declared).lower(*mistake.arguments)
        except CollectiveError as error:
            return f"error: {error}"
        except CommunicationWarning as warning:
            return f"warning: {warning}"
    return ""


@pytest.mark.sampled(14)
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.build.__name__ for mistake in MISTAKES])
def test_a_mistake_is_found_and_what_looks_like_it_passes(mistake: Mistake) -> None:
    found = traced(mistake, wrong=True)
    assert found.startswith("error" if mistake.certain else "warning"), found
    assert f"mistakes.py:{mistake.line}: " in found.split("\n")[0]
    assert mistake.text in found
    assert traced(mistake, wrong=False) == ""
