"""Sums of products over windows (spmd.compiler.schedule.windows), out of line: one piece of code for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.outlined import OutOfLine, Parameter, body_of
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import constant_text, llvm_type, suffix
from spmd.backends.llvm.loops.loops import Range
from spmd.compiler.schedule.lanes import Lanes, lanes_of
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.windows import WindowFold, WindowPlace, window_fold_of
from spmd.ir import Value

#: Loops around a window, and of it, at most; turns of those, of which the last is written out.
_AROUND, _TAPS, _MOST, _WRITTEN_OUT = 3, 2, 64, 8
#: Features that are computed at a time, and those that are left over.
_LANES, _REST = 64, 16
#: Products from which on a call is worth it.
_LEAST = 1 << 12


def apart_window_of(nest: Nest, part: Range | None = None) -> WindowFold | None:
    """What `nest` folds out of line; None where it does anything else, or little, or is not run whole."""
    fold = window_fold_of(nest) if part is None and prod(nest.extents) >= _LEAST else None
    if fold is None or len(fold.outer) > _AROUND or len(fold.taps) > _TAPS:
        return None
    if nest.extents[fold.taps[-1]] > _WRITTEN_OUT:
        return None
    lanes = lanes_of(nest, nest.stages[0])
    in_order = lanes == Lanes(fold.lane, lanes.width) and all(nest.extents[tap] <= _MOST for tap in fold.taps)
    return fold if in_order and nest.extents[fold.lane] >= _LANES else None


def write_window(text: FunctionText, nest: Nest, pointer: Callable[[Value], str], part: Range | None) -> bool:
    """Writes a call for what `nest` folds; False, with nothing written, where that is not done out of line."""
    fold = apart_window_of(nest, part)
    if fold is None or pointer(fold.result) in (pointer(fold.image.value), pointer(fold.weights.value)):
        return False
    has_rest, taps = nest.extents[fold.lane] % _LANES > 0, nest.extents[fold.taps[-1]]
    sums = WindowSums(fold.type, fold.padding is not None, fold.image_first, has_rest, taps)
    item = fold.type.bits // 8
    places = ((fold.image.value, fold.image.address), (fold.weights.value, fold.weights.address))
    told = []
    for value, address in (*places, (fold.result, fold.written)):
        told.append(text.value(f"getelementptr i8, ptr {pointer(value)}, i64 {address.offset * item}"))
    told += [text.numbers(_sizes(nest, fold, item)), constant_text(fold.initial)]
    if fold.padding is not None:
        told.append(constant_text(fold.padding))
    sums.write_call(text, told)
    return True


def _sizes(nest: Nest, fold: WindowFold, item: int) -> list[int]:
    """As `WindowSums` reads them; loops that are not there have one turn."""
    taps: list[Variable | None] = [None] * (_TAPS - len(fold.taps)) + list(fold.taps)
    outer: list[Variable | None] = [None] * (_AROUND - len(fold.outer)) + list(fold.outer)
    anywhere = WindowPlace(fold.written.scaled(0), 1)
    places = [anywhere if tap is None else fold.places.get(tap, anywhere) for tap in taps]
    image, weights, written = fold.image.address, fold.weights.address, fold.written
    numbers: list[int] = []
    for loop in outer:
        if loop is None:
            numbers += [1] + [0] * (2 + _TAPS)
        else:
            numbers += [nest.extents[loop], image.coefficient(loop) * item, written.coefficient(loop) * item]
            numbers += [each.place.coefficient(loop) for each in places]
    for tap, each in zip(taps, places, strict=True):
        if tap is None:
            numbers += [1, 0, 0, 0]
        else:
            numbers += [nest.extents[tap], image.coefficient(tap) * item, weights.coefficient(tap) * item]
            numbers.append(each.place.coefficient(tap))
        numbers += [each.place.offset, each.limit]
    return [*numbers, nest.extents[fold.lane]]


@dataclass(frozen=True)
class WindowSums(OutOfLine):
    """Sums of products of images and weights; `is_padded`: windows may go beyond the image; `has_rest`: there are
    features that do not fill all lanes. The last of the window's loops has so many `taps`."""

    type: MachineType
    is_padded: bool
    image_first: bool
    has_rest: bool
    taps: int

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.window.f32.3.padded`."""
        told = {"padded": self.is_padded, "weights": not self.image_first, "rest": self.has_rest}
        ends = [name for name, holds in told.items() if holds]
        return ".".join(["spmd.window", self.type.value, str(self.taps), *ends])

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Image, weights and result; what `_sizes` says; what sums begin with, and what stands beyond the image."""
        scalar = llvm_type(self.type)
        pointers = [Parameter("ptr", f"%{name}", "noalias readonly") for name in ("image", "weights", "sizes")]
        pointers.insert(2, Parameter("ptr", "%result", "noalias"))
        scalars = [Parameter(scalar, "%initial"), Parameter(scalar, "%padding")]
        return [*pointers, *scalars[: 1 + self.is_padded]]

    def body(self) -> str:
        """Window by window."""
        text = FunctionText()
        _Sums(text, self).write()
        of_loop = ["turns", "image", "result", *(f"place.{tap}." for tap in range(_TAPS))]
        of_tap = ["taps", "tap.image", "tap.weights", "tap.place", "begin.place", "limit"]
        names = [f"%{name}{loop}" for loop in range(_AROUND) for name in of_loop]
        names += [f"%{name}{tap}" for tap in range(_TAPS) for name in of_tap]
        return body_of(text, [*names, "%features"])


@dataclass(frozen=True)
class _Tap:
    """A place of a window: the addresses of image and weights, and the i1 that tells whether the image has it."""

    image: str
    weights: str
    holds: str


class _Sums:
    """Writes the body of the function."""

    def __init__(self, text: FunctionText, sums: WindowSums) -> None:
        self.text, self.sums = text, sums
        self.scalar, self.item = llvm_type(sums.type), sums.type.bits // 8

    def write(self) -> None:
        text = self.text
        nothing = ""
        if self.sums.is_padded:
            nothing = text.allocate(self._vector(_LANES))
            text.line(f"store {self._vector(_LANES)} {self._splat('%padding', _LANES)}, ptr {nothing}")
        image, result = "%image", "%result"
        places = [f"%begin.place{tap}" for tap in range(_TAPS)]
        for loop in range(_AROUND):
            turn, _ = text.open_loop()
            image, result = self._moved(image, turn, f"%image{loop}"), self._moved(result, turn, f"%result{loop}")
            places = [self._plus(place, turn, f"%place.{tap}.{loop}") for tap, place in enumerate(places)]
        if nothing:
            features = partial(self._features, image, result, places)
            text.either(self._is_inside(places), partial(features, ""), partial(features, nothing))
        else:
            self._features(image, result, places, "")
        for loop in reversed(range(_AROUND)):
            text.close_loop(f"%turns{loop}")

    def _features(self, image: str, result: str, places: list[str], nothing: str) -> None:
        """The sums of all features, of which there are enough for all lanes, at one point."""
        text, whole = self.text, "%features"
        if self.sums.has_rest:
            whole = text.value(f"and i64 %features, {-_LANES}")
        feature, _ = text.open_loop()
        self._block(_LANES, feature, image, result, places, nothing)
        text.close_loop(whole, _LANES)
        if self.sums.has_rest:
            feature, _ = text.open_loop()
            self._block(_REST, feature, image, result, places, nothing)
            text.close_loop("%features", _REST, whole)

    def _is_inside(self, places: list[str]) -> str:
        """The name of the i1 that tells whether a window's ends, and so all of it, are in the image."""
        text, holds = self.text, "true"
        for tap, place in enumerate(places):
            last = self._plus(place, text.value(f"sub i64 %taps{tap}, 1"), f"%tap.place{tap}")
            for end in (place, last):
                inside = text.value(f"icmp ult i64 {end}, %limit{tap}")
                holds = text.value(f"and i1 {holds}, {inside}")
        return holds

    def _block(self, width: int, feature: str, image: str, result: str, places: list[str], nothing: str) -> None:
        """The sums of `width` features from `feature` on, or of those that there are.

        `nothing` is the address of what is read beyond the image, empty where the window does not go there.
        """
        text, vector = self.text, self._vector(width)
        offset = text.value(f"mul i64 {feature}, {self.item}")
        sums = text.allocate(vector)
        text.line(f"store {vector} {self._splat('%initial', width)}, ptr {sums}")
        mask = self._mask(width, feature) if width == _REST else ""
        begin = _Tap(self._at(image, offset), self._at("%weights", offset), "true")
        turn, _ = text.open_loop()
        row = self._turn(begin, 0, turn, places[0], nothing)
        for number in range(self.sums.taps):
            self._add(self._turn(row, 1, str(number), places[1], nothing), sums, width, mask, nothing)
        text.close_loop("%taps0")
        total, target = text.value(f"load {vector}, ptr {sums}"), self._at(result, offset)
        if not mask:
            text.line(f"store {vector} {total}, ptr {target}, align {self.item}")
        else:
            name = f"llvm.masked.store.{suffix(self.sums.type, width)}.p0"
            text.line(f"call void @{name}({vector} {total}, ptr align {self.item} {target}, {mask})")

    def _turn(self, before: _Tap, loop: int, turn: str, place: str, nothing: str) -> _Tap:
        """Where the turn number `turn` of a loop of the window reads, of which the first reads `before`."""
        text = self.text
        image = self._moved(before.image, turn, f"%tap.image{loop}")
        weights = self._moved(before.weights, turn, f"%tap.weights{loop}")
        if not nothing:
            return _Tap(image, weights, before.holds)
        here = self._plus(place, turn, f"%tap.place{loop}")
        inside = text.value(f"icmp ult i64 {here}, %limit{loop}")
        return _Tap(image, weights, text.value(f"and i1 {before.holds}, {inside}"))

    def _add(self, tap: _Tap, sums: str, width: int, mask: str, nothing: str) -> None:
        """Adds the products of a place of the window."""
        text, vector = self.text, self._vector(width)
        image = text.value(f"select i1 {tap.holds}, ptr {tap.image}, ptr {nothing}") if nothing else tap.image
        pair = [self._load(address, width, mask) for address in (image, tap.weights)]
        if not self.sums.image_first:
            pair.reverse()
        product = text.value(f"fmul {vector} {pair[0]}, {pair[1]}")
        before = text.value(f"load {vector}, ptr {sums}")
        text.line(f"store {vector} {text.value(f'fadd {vector} {before}, {product}')}, ptr {sums}")

    def _mask(self, width: int, feature: str) -> str:
        """The lanes that stand for features, with LLVM's type."""
        text = self.text
        left = text.value(f"sub i64 %features, {feature}")
        one = text.value(f"insertelement <{width} x i64> poison, i64 {left}, i64 0")
        every = text.value(
            f"shufflevector <{width} x i64> {one}, <{width} x i64> poison, <{width} x i32> zeroinitializer"
        )
        numbers = ", ".join(f"i64 {lane}" for lane in range(width))
        return f"<{width} x i1> {text.value(f'icmp ult <{width} x i64> <{numbers}>, {every}')}"

    def _load(self, address: str, width: int, mask: str) -> str:
        vector = self._vector(width)
        if not mask:
            return self.text.value(f"load {vector}, ptr {address}, align {self.item}")
        name = f"llvm.masked.load.{suffix(self.sums.type, width)}.p0"
        return self.text.value(
            f"call {vector} @{name}(ptr align {self.item} {address}, {mask}, {vector} zeroinitializer)"
        )

    def _vector(self, width: int) -> str:
        return f"<{width} x {self.scalar}>"

    def _splat(self, name: str, width: int) -> str:
        vector = self._vector(width)
        one = self.text.value(f"insertelement {vector} poison, {self.scalar} {name}, i64 0")
        return self.text.value(f"shufflevector {vector} {one}, {vector} poison, <{width} x i32> zeroinitializer")

    def _at(self, pointer: str, offset: str) -> str:
        return self.text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _moved(self, pointer: str, turn: str, stride: str) -> str:
        return self._at(pointer, self.text.value(f"mul i64 {turn}, {stride}"))

    def _plus(self, place: str, turn: str, step: str) -> str:
        return self.text.value(f"add i64 {place}, {self.text.value(f'mul i64 {turn}, {step}')}")
