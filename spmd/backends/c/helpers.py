"""Functions of C that sources have themselves, where C99's library has none."""

from __future__ import annotations

from typing import NamedTuple


class Helper(NamedTuple):
    """A function's text, and the others that it calls."""

    text: str
    needs: tuple[str, ...] = ()


def _extremum(name: str, type: str, suffix: str, beyond: str, sign: str) -> Helper:
    return Helper(
        f"""/* NaN propagates; -0 is below +0. */
static {type} {name}_{suffix}({type} x, {type} y) {{
  if (x != x || y != y) return x + y;
  if (x == y) return {sign}signbit(x) ? x : y;
  return x {beyond} y ? x : y;
}}"""
    )


def _bits(type: str, bits: str, suffix: str) -> dict[str, Helper]:
    return {
        name: Helper(
            f"""static {target} {name}({source} x) {{
  {target} y;
  memcpy(&y, &x, sizeof y);
  return y;
}}"""
        )
        for name, source, target in ((f"bits_of_{suffix}", type, bits), (f"{suffix}_of_bits", bits, type))
    }


HELPERS: dict[str, Helper] = {
    "maximum_f32": _extremum("maximum", "float", "f32", ">", "!"),
    "maximum_f64": _extremum("maximum", "double", "f64", ">", "!"),
    "minimum_f32": _extremum("minimum", "float", "f32", "<", ""),
    "minimum_f64": _extremum("minimum", "double", "f64", "<", ""),
    **_bits("float", "uint32_t", "f32"),
    **_bits("double", "uint64_t", "f64"),
    "ctpop": Helper("""static uint32_t ctpop(uint64_t x) {
  uint32_t count = 0;
  for (; x; x &= x - 1) count++;
  return count;
}"""),
    "ctlz": Helper("""static uint32_t ctlz(uint64_t x) {
  uint32_t count = 64;
  for (; x; x >>= 1) count--;
  return count;
}"""),
    "half_to_float": Helper(
        """/* The f16 of these bits. */
static float half_to_float(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = (x >> 10) & 31u, mantissa = x & 0x3ffu;
  if (exponent == 31) return f32_of_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  return (sign ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
}""",
        ("f32_of_bits",),
    ),
    "float_to_half": Helper(
        """/* The bits of the nearest f16, of two the even one. */
static uint16_t float_to_half(float x) {
  const uint32_t bits = bits_of_f32(x), size = bits & 0x7fffffffu;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
  if (size >= 0x477ff000u) return sign | 0x7c00u;
  if (size < 0x38800000u) return sign | (uint16_t)rintf(fabsf(x) * 0x1p24f);
  return (uint16_t)(sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13);
}""",
        ("bits_of_f32",),
    ),
}
