"""The on-disk cache of compiled programs: a warm start neither schedules nor compiles.

An entry is the plan of an entry function: machine code of its native regions, constants, and the ops that Python runs,
whose kernels are made anew. The key is the program as given, independent of its file name, and all other inputs of
compilation (spmd.compiler.pipeline.cache_key). Entries are managed by spmd.support.compiled_cache; an unreadable entry
is a miss.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from spmd.analysis.constants import constant_array
from spmd.analysis.memory import over_memory
from spmd.analysis.portable import OpNumbers, Packer, PortableOp, PortableTables, Unpacker
from spmd.backends.native import CompiledRegion, NativeBackend, NativeCode
from spmd.compiler.pipeline.cache_key import cache_key, pickled
from spmd.compiler.pipeline.options import Options
from spmd.compiler.plan.native_regions import MakeStep, callback_of, native_step
from spmd.compiler.plan.steps import Plan, PlanStep, plan_buffers
from spmd.ir import Function, Module, Value
from spmd.ir.attributes import aligned
from spmd.support.compiled_cache import user_cache


@dataclass(frozen=True)
class _CachedStep:
    """A step: its op, inputs, outputs, native code if any, and the ops called back from it."""

    op: PortableOp
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    code: NativeCode | None
    called: tuple[PortableOp, ...]


@dataclass(frozen=True)
class _CachedPlan:
    """A plan before buffer planning; values are numbers in `tables`."""

    tables: PortableTables
    parameters: tuple[int, ...]
    constants: tuple[int, ...]
    steps: tuple[_CachedStep, ...]
    results: tuple[int, ...]
    donated: frozenset[int]


class CachedProgram:
    """The cache entry of `function` of `module`, compiled with `options`; watched programs are not cached."""

    def __init__(self, module: Module, function: Function, options: Options) -> None:
        self._backend = options.native
        self._cache = user_cache() if self._backend is not None and options.watch is None else None
        if self._cache is not None:
            self._places = OpNumbers(module)
            self._key = cache_key(module, function, options, self._places)

    def get(self, make_step: MakeStep) -> Plan | None:
        """Return the cached plan, or None; `make_step` makes the steps that Python runs."""
        if self._backend is None or self._cache is None or self._key is None:
            return None
        if (content := self._cache.get(self._key)) is None:
            return None
        cached: _CachedPlan = pickle.loads(content)
        for step in cached.steps:
            if step.code is not None and over_memory("", step.code.arena, step.code.arena) is not None:
                return None  # recompiling raises the error
        return _plan(cached, Unpacker(cached.tables, self._places.ops), self._backend, make_step)

    def put(self, plan: Plan) -> None:
        """Store `plan` if it can be pickled."""
        if self._cache is None or self._key is None:
            return
        packer = Packer(self._places)
        cached = _cached(plan, packer)
        if packer.is_placed and (content := pickled(cached)) is not None:
            self._cache.put(self._key, content)


def _cached(plan: Plan, packer: Packer) -> _CachedPlan:
    for value in plan.constants:
        packer.constant(value)
    steps = []
    for step in plan.steps:
        code, called = (None, ()) if step.native is None else (step.native.code, step.native.called)
        inputs, outputs = packer.values(step.inputs), packer.values(step.outputs)
        op = packer.reader(step.op) if code is None else packer.mark(step.op)
        steps.append(_CachedStep(op, inputs, outputs, code, tuple(map(packer.reader, called))))
    parameters, constants, results = map(packer.values, (plan.parameters, plan.constants, plan.results))
    return _CachedPlan(packer.tables, parameters, constants, tuple(steps), results, plan.donated)


def _plan(cached: _CachedPlan, unpacker: Unpacker, backend: NativeBackend, make_step: MakeStep) -> Plan:
    constants: dict[Value, object] = {}
    for value in unpacker.values(cached.constants):
        array = constant_array(value.defining_op)
        assert array is not None, "a constant is kept with its elements"
        constants[value] = aligned(array)
    parameters = unpacker.values(cached.parameters)
    steps = [_step(each, unpacker, backend, make_step) for each in cached.steps]
    plan = Plan(parameters, constants, steps, unpacker.values(cached.results), {})
    plan_buffers(plan, cached.donated)
    return plan


def _step(cached: _CachedStep, unpacker: Unpacker, backend: NativeBackend, make_step: MakeStep) -> PlanStep:
    op = unpacker.op(cached.op)
    if cached.code is None:
        return make_step(op)
    called = [unpacker.op(each) for each in cached.called]
    callbacks = [callback_of(make_step(each), None) for each in called]
    inputs, outputs = unpacker.values(cached.inputs), unpacker.values(cached.outputs)
    return native_step(backend, op, CompiledRegion(cached.code, callbacks), inputs, outputs, called)
