"""Rules of communication with hosts and other programs, which need replicated values."""

from __future__ import annotations

from partitioner.rules.core import replicated_rule, rule

rule("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv", published=False)(replicated_rule)
