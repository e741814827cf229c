"""VHLO: StableHLO's ops as versions of them, which is how programs are kept for other versions to read.

Source: openxla/stablehlo, docs/vhlo.md, and the passes between StableHLO and VHLO.
"""
