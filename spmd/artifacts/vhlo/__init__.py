"""VHLO: versioned StableHLO ops, the portable form of programs.

Source: openxla/stablehlo, docs/vhlo.md, and the passes between StableHLO and VHLO.
"""
