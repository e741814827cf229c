"""What the launcher tells the ranks of an elastic job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from collectives.settings import seconds_from
from spmd.errors import UsageError
from spmd.runtime.failure import ELASTIC_VARIABLE

MINIMUM_VARIABLE = ELASTIC_VARIABLE
PATIENCE_VARIABLE = "SPMD_ELASTIC_PATIENCE"
DEFAULT_PATIENCE = 10.0


@dataclass(frozen=True)
class Settings:
    """`minimum` ranks go on, fewer do not; a rank of which nothing is heard for `patience` seconds is declared dead
    (0: never)."""

    minimum: int = 1
    patience: float = DEFAULT_PATIENCE

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """What the variables say. UsageError where one says nothing sensible."""
        minimum = environment.get(MINIMUM_VARIABLE, "1")
        patience = environment.get(PATIENCE_VARIABLE, str(DEFAULT_PATIENCE))
        if not minimum.isascii() or not minimum.isdigit() or int(minimum) < 1:
            raise UsageError(f"{MINIMUM_VARIABLE}={minimum}: a number of ranks from 1 on is needed")
        try:
            return cls(int(minimum), seconds_from(patience))
        except ValueError as error:
            raise UsageError(f"{PATIENCE_VARIABLE}={patience}: {error}") from None

    def variables(self) -> dict[str, str]:
        """The environment that says so."""
        return {MINIMUM_VARIABLE: str(self.minimum), PATIENCE_VARIABLE: str(self.patience)}
