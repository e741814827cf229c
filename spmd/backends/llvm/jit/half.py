"""Conversions between f16 and f32 for processors without them: the library functions that LLVM then calls.

Normal numbers of f16 and f32 differ in their field widths only. Subnormals are integer multiples of 2^-24, exact in
f32; adding 0.5 rounds to such a multiple. NaNs keep the leading payload bits and are quieted, as by the hardware
instructions.
"""

FUNCTIONS = """
define internal float @__extendhfsf2(half %half) nounwind {
  %short = bitcast half %half to i16
  %bits = zext i16 %short to i32
  %high = and i32 %bits, 32768
  %sign = shl i32 %high, 16
  %magnitude = and i32 %bits, 32767
  %fields = shl i32 %magnitude, 13
  %normal = add i32 %fields, 939524096
  %number = uitofp i32 %magnitude to float
  %small = fmul float %number, 0x3E70000000000000
  %subnormal = bitcast float %small to i32
  %infinite = or i32 %fields, 2139095040
  %quiet = or i32 %infinite, 4194304
  %is.subnormal = icmp ult i32 %magnitude, 1024
  %is.finite = icmp ult i32 %magnitude, 31744
  %is.nan = icmp ugt i32 %magnitude, 31744
  %some = select i1 %is.subnormal, i32 %subnormal, i32 %normal
  %other = select i1 %is.nan, i32 %quiet, i32 %infinite
  %chosen = select i1 %is.finite, i32 %some, i32 %other
  %result = or i32 %chosen, %sign
  %float = bitcast i32 %result to float
  ret float %float
}

define internal half @__truncsfhf2(float %float) nounwind {
  %bits = bitcast float %float to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %magnitude = and i32 %bits, 2147483647
  %last = lshr i32 %magnitude, 13
  %odd = and i32 %last, 1
  %moved = sub i32 %magnitude, 939524096
  %half.unit = add i32 %moved, 4095
  %rounded = add i32 %half.unit, %odd
  %normal = lshr i32 %rounded, 13
  %number = bitcast i32 %magnitude to float
  %shifted = fadd float %number, 0.5
  %counted = bitcast float %shifted to i32
  %subnormal = sub i32 %counted, 1056964608
  %payload = and i32 %last, 1023
  %nan = or i32 %payload, 32256
  %is.subnormal = icmp ult i32 %magnitude, 947912704
  %is.finite = icmp ult i32 %magnitude, 1199566848
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %some = select i1 %is.subnormal, i32 %subnormal, i32 %normal
  %other = select i1 %is.nan, i32 %nan, i32 31744
  %chosen = select i1 %is.finite, i32 %some, i32 %other
  %result = or i32 %chosen, %sign
  %short = trunc i32 %result to i16
  %half = bitcast i16 %short to half
  ret half %half
}
"""
