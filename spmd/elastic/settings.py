"""The settings of an elastic job, which the launcher passes to its ranks in environment variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from collectives.failure import ELASTIC_VARIABLE
from collectives.settings import seconds_from
from spmd.errors import UsageError
from spmd.runtime.silence import PATIENCE_VARIABLE

MINIMUM_VARIABLE = ELASTIC_VARIABLE
TARGET_VARIABLE = "SPMD_ELASTIC_TARGET_RANKS"
MOST_VARIABLE = "SPMD_ELASTIC_MAX_RANKS"
#: The command that starts a rank on a host, as a JSON list, for hosts that are not in the launcher's allocation.
STARTER_VARIABLE = "SPMD_ELASTIC_STARTER"
DEFAULT_PATIENCE = 10.0


@dataclass(frozen=True)
class Settings:
    """Limits of an elastic job.

    The job fails with fewer than `minimum` ranks. A rank without a heartbeat for `patience` seconds is declared dead
    (0: never). With fewer than `target` ranks, replacements are started; on request ranks may join up to `most` (0:
    none). The command `starter`, followed by a host's name, a rank's number and a command, starts a rank there; if it
    is empty, MPI does.
    """

    minimum: int = 1
    patience: float = DEFAULT_PATIENCE
    target: int = 0
    most: int = 0
    starter: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether ranks may join."""
        return self.most > 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the variables of `environment`. UsageError if one has no valid value."""
        patience = environment.get(PATIENCE_VARIABLE, str(DEFAULT_PATIENCE))
        try:
            seconds = seconds_from(patience)
        except ValueError as error:
            raise UsageError(f"{PATIENCE_VARIABLE}={patience}: {error}") from None
        return cls(
            _number(environment, MINIMUM_VARIABLE, 1),
            seconds,
            _number(environment, TARGET_VARIABLE, 0),
            _number(environment, MOST_VARIABLE, 0),
            tuple(json.loads(environment.get(STARTER_VARIABLE, "[]"))),
        )

    def variables(self) -> dict[str, str]:
        """Return the environment variables that `from_environment` reads back as these settings."""
        return {
            MINIMUM_VARIABLE: str(self.minimum),
            PATIENCE_VARIABLE: str(self.patience),
            TARGET_VARIABLE: str(self.target),
            MOST_VARIABLE: str(self.most),
            STARTER_VARIABLE: json.dumps(self.starter),
        }


def _number(environment: Mapping[str, str], variable: str, least: int) -> int:
    text = environment.get(variable, str(least))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise UsageError(f"{variable}={text}: must be a number of ranks of at least {least}")
    return int(text)
