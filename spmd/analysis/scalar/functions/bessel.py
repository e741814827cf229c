"""The exponentially scaled modified Bessel function of order one, in f64 (also for f32).

Up to 8 it is x exp(-x) P(x^2), where all coefficients of P are positive, so that no digit is lost; above, it is
P(16 / x - 1) / sqrt(x). The polynomials interpolate at Chebyshev's points; those for f32 are shorter.
"""

from __future__ import annotations

from spmd.analysis.scalar.build import abs_, call, compare, copysign, like, polynomial, rarely, select, sqrt
from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.analysis.scalar.functions.table import define, in_double

_NEAR = (
    2.716505589516919e-35, 1.3808181584914298e-32, 1.408926251589232e-29, 9.956969230500738e-27,
    6.2370206832638684e-24, 3.2918259018287706e-21, 1.448455537254395e-18, 5.214425120919993e-16,
    1.5017547367976848e-13, 3.3639305668982475e-11, 5.651403356704746e-09, 6.781684027764357e-07,
    5.42534722222271e-05, 0.0026041666666666574, 0.06250000000000001, 0.5,
)  # fmt: skip
_NEAR_SINGLE = (
    1.7599167975856656e-26, 4.708715077990487e-24, 3.462455023013419e-21, 1.4363736932125096e-18,
    5.220150066471134e-16, 1.501569480729061e-13, 3.363971454938403e-11, 5.651397324603597e-09, 6.781684597911476e-07,
    5.4253471901983145e-05, 0.0026041666676001178, 0.062499999998932056, 0.5,
)  # fmt: skip
_FAR = (
    2.2421768596847442e-11, -9.491890392992048e-11, -1.6283264322621244e-10, 6.7727478454462e-10,
    5.870664618471487e-10, -2.2624401109204446e-09, -1.5218214060680734e-09, 4.763780078020254e-09,
    3.501765193290176e-09, -6.9444186339873875e-09, -7.687251308765992e-09, 5.5720183980930355e-09,
    1.4051746928735543e-08, 6.84757829926934e-09, -8.432168972932417e-09, -2.3394122958362557e-08,
    -4.3128498031006734e-08, -1.0001075046243961e-07, -3.4838563464253135e-07, -1.8349102493990178e-06,
    -1.5038547198221758e-05, -0.00021923576383137776, -0.009749577193235765, 0.38939845902587233,
)  # fmt: skip
_FAR_SINGLE = (
    7.600979256637228e-09, 8.43120407703339e-09, -2.1428552803957853e-08, -5.474730168891007e-08,
    -1.0125315435757985e-07, -3.441973856934691e-07, -1.8346611124062903e-06, -1.5039222626597893e-05,
    -0.00021923577677583148, -0.009749577160828079, 0.38939845902587233,
)  # fmt: skip


@define(Primitive.BESSEL_I1E)
@in_double
def bessel_i1e(x: Expression, single: bool) -> Expression:
    """Return exp(-|x|) I1(x), which is odd.

    Near zero it is x / 2 - x |x| / 2: less than x / 2, which may be a tie between two narrower floats.
    """
    size = abs_(x)
    near = call(Primitive.EXP, -size) * polynomial(x * x, _NEAR_SINGLE if single else _NEAR)
    near = x * select(compare("olt", size, 2.0**-54), like(0.5 - 2.0**-54, x), near)
    inverse = 1 / size
    far = sqrt(inverse) * polynomial(16 * inverse - 1, _FAR_SINGLE if single else _FAR)
    return rarely(compare("ogt", size, 8), copysign(far, x), near)
