"""What tests of running programs share."""

import pytest

from tests.jax_programs import JaxProgram, export


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JaxProgram]:
    """Programs that JAX lowers for 8 devices, with what it computes of them, by name."""
    pytest.importorskip("jax")
    return export(8, tmp_path_factory.mktemp("jax"))
