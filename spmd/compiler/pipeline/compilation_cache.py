"""Whole programs kept on disk between runs: the second start of a program neither schedules nor compiles it.

An entry is the plan of a program's entry function: the machine code of its native functions, its constants, and the
ops that Python runs, of which kernels are made anew. It is found by the program as it was given, whatever its file is
called, and by all else that compiling depends on (spmd.compiler.pipeline.cache_key). The entries lie among those of
spmd.support.compiled_cache, whose care they share. An entry that cannot be read is none.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from spmd.analysis.constants import constant_array
from spmd.analysis.memory import over_memory
from spmd.analysis.portable import Packer, Places, PortableOp, PortableTables, Unpacker
from spmd.backends.native import CompiledRegion, NativeBackend, NativeCode
from spmd.compiler.pipeline.cache_key import cache_key, pickled
from spmd.compiler.pipeline.options import Options
from spmd.compiler.plan.native_regions import MakeStep, callback_of, native_step
from spmd.compiler.plan.steps import Plan, PlanStep, plan_buffers
from spmd.ir import Function, Module, Value
from spmd.ir.attributes import aligned
from spmd.support.compiled_cache import user_cache


@dataclass(frozen=True)
class _KeptStep:
    """A step: the op where it stands, what it reads and gives, its native code if it has any, and what that calls."""

    op: PortableOp
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    code: NativeCode | None
    called: tuple[PortableOp, ...]


@dataclass(frozen=True)
class _KeptPlan:
    """A plan before its buffers are planned; values are numbers in `tables`."""

    tables: PortableTables
    parameters: tuple[int, ...]
    constants: tuple[int, ...]
    steps: tuple[_KeptStep, ...]
    results: tuple[int, ...]
    donated: frozenset[int]


class KeptProgram:
    """The entry of `function` of `module`, compiled with `options`; what is watched is compiled anew."""

    def __init__(self, module: Module, function: Function, options: Options) -> None:
        self._backend = options.native
        self._cache = user_cache() if self._backend is not None and options.watch is None else None
        if self._cache is not None:
            self._places = Places(module)
            self._key = cache_key(module, function, options, self._places)

    def get(self, make_step: MakeStep) -> Plan | None:
        """The plan that was kept; `make_step` makes the steps that Python runs. None where there is none."""
        if self._backend is None or self._cache is None or self._key is None:
            return None
        if (content := self._cache.get(self._key)) is None:
            return None
        kept: _KeptPlan = pickle.loads(content)
        for step in kept.steps:
            if step.code is not None and over_memory("", step.code.arena, step.code.arena) is not None:
                return None  # compiled again, it is refused with its reason
        return _plan(kept, Unpacker(kept.tables, self._places.ops), self._backend, make_step)

    def put(self, plan: Plan) -> None:
        """Keeps `plan`, if it can be."""
        if self._cache is None or self._key is None:
            return
        packer = Packer(self._places)
        kept = _kept(plan, packer)
        if packer.is_placed and (content := pickled(kept)) is not None:
            self._cache.put(self._key, content)


def _kept(plan: Plan, packer: Packer) -> _KeptPlan:
    for value in plan.constants:
        packer.constant(value)
    steps = []
    for step in plan.steps:
        code, called = (None, ()) if step.native is None else (step.native.code, step.native.called)
        inputs, outputs = packer.values(step.inputs), packer.values(step.outputs)
        op = packer.reader(step.op) if code is None else packer.mark(step.op)
        steps.append(_KeptStep(op, inputs, outputs, code, tuple(map(packer.reader, called))))
    parameters, constants, results = map(packer.values, (plan.parameters, plan.constants, plan.results))
    return _KeptPlan(packer.tables, parameters, constants, tuple(steps), results, plan.donated)


def _plan(kept: _KeptPlan, unpacker: Unpacker, backend: NativeBackend, make_step: MakeStep) -> Plan:
    constants: dict[Value, object] = {}
    for value in unpacker.values(kept.constants):
        array = constant_array(value.defining_op)
        assert array is not None, "a constant is kept with its elements"
        constants[value] = aligned(array)
    parameters = unpacker.values(kept.parameters)
    steps = [_step(each, unpacker, backend, make_step) for each in kept.steps]
    plan = Plan(parameters, constants, steps, unpacker.values(kept.results), {})
    plan_buffers(plan, kept.donated)
    return plan


def _step(kept: _KeptStep, unpacker: Unpacker, backend: NativeBackend, make_step: MakeStep) -> PlanStep:
    op = unpacker.op(kept.op)
    if kept.code is None:
        return make_step(op)
    called = [unpacker.op(each) for each in kept.called]
    callbacks = [callback_of(make_step(each), None) for each in called]
    inputs, outputs = unpacker.values(kept.inputs), unpacker.values(kept.outputs)
    return native_step(backend, op, CompiledRegion(kept.code, callbacks), inputs, outputs, called)
