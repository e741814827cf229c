"""C helper functions that sources include, where C99's library has none."""

from __future__ import annotations

import re

_EXTREMA = """
/* NaN propagates; -0 is below +0. */
static float maximum_f32(float x, float y) {
  if (x != x || y != y) return x + y;
  return x > y || (x == y && !signbit(x)) ? x : y;
}

/* NaN propagates; -0 is below +0. */
static float minimum_f32(float x, float y) {
  if (x != x || y != y) return x + y;
  return x < y || (x == y && signbit(x)) ? x : y;
}

static uint32_t bits_of_f32(float x) {
  uint32_t y;
  memcpy(&y, &x, sizeof y);
  return y;
}

static float f32_of_bits(uint32_t x) {
  float y;
  memcpy(&y, &x, sizeof y);
  return y;
}
"""
_OTHERS = """
static uint32_t ctpop(uint64_t x) {
  uint32_t count = 0;
  for (; x; x &= x - 1) count++;
  return count;
}

static uint32_t ctlz(uint64_t x) {
  uint32_t count = 64;
  for (; x; x >>= 1) count--;
  return count;
}

/* The f16 of these bits. */
static float half_to_float(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = (x >> 10) & 31u, mantissa = x & 0x3ffu;
  if (exponent == 31) return f32_of_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  return (sign ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
}

/* The bits of the nearest f16, of two the even one. */
static uint16_t float_to_half(float x) {
  const uint32_t bits = bits_of_f32(x), size = bits & 0x7fffffffu;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
  if (size >= 0x477ff000u) return sign | 0x7c00u;
  if (size < 0x38800000u) return sign | (uint16_t)rintf(fabsf(x) * 0x1p24f);
  return (uint16_t)(sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13);
}
"""
_DOUBLE = _EXTREMA.replace("float", "double").replace("f32", "f64").replace("uint32", "uint64")

#: Definitions by name; callees come first.
HELPERS: dict[str, str] = {}
for _text in (_EXTREMA + _DOUBLE + _OTHERS).strip().split("\n\n"):
    HELPERS[_text.partition("(")[0].split()[-1]] = _text


def needs(name: str) -> list[str]:
    """Return the other helpers that a helper calls."""
    return [other for other in re.findall(r"\w+", HELPERS[name]) if other in HELPERS and other != name]
