"""HLO text with words and numbers changed is read, or refused with an SpmdError that names a place in it."""

import re
from random import Random

import pytest

import spmd
from spmd.builder.hlo import print_hlo
from tests.artifacts.programs import PROGRAMS
from tests.mutants import mutated_text

MORE = """HloModule m, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[8,4]{1,0} parameter(0), sharding={devices=[2,2]<=[4]}
  i = s32[3] parameter(1)
  s = f32[8,4] all-reduce(x), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=add
  g = f32[3,4] gather(s, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
  d = f32[8,8] dot(s, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  p = f32[10,11] pad(d, f32[] constant(0)), padding=1_1_0x2_1_0
  w = f32[9,10] reduce-window(p, f32[] constant(0)), window={size=2x2}, to_apply=add
  z = s32[3,4] iota(), iota_dimension=1
  c = f32[2,2] constant({{1, 2}, {3, 4}})
  ROOT t = (f32[9,10], f32[3,4], s32[3,4], f32[2,2]) tuple(w, g, z, c)
}
"""  # noqa: E501


def _seeds() -> list[str]:
    texts = [MORE]
    for program in PROGRAMS.values():
        try:
            texts.append(print_hlo(spmd.parse(program)))
        except spmd.SpmdError:  # it has what HLO has not
            continue
    return texts


@pytest.mark.parametrize(
    ("seed", "count"), [("HLO", 300), *[pytest.param(f"HLO {n}", 20_000, marks=pytest.mark.slow) for n in range(10)]]
)
def test_mutants_of_hlo_text_are_read_or_refused_at_a_place(seed: str, count: int) -> None:
    random, seeds = Random(seed), _seeds()
    assert len(seeds) > 3
    refused = 0
    for _ in range(count):
        text = mutated_text(random.choice(seeds), random)
        try:
            module = spmd.parse(text)
        except spmd.SpmdError as error:
            assert error.diagnostics
            assert all(1 <= d.location.line <= text.count("\n") + 1 for d in error.diagnostics)
            refused += 1
            continue
        assert spmd.parse(str(module))
    assert count / 3 < refused < count * 29 / 30


def test_an_instruction_reads_alike_as_xla_prints_it_and_with_other_spaces() -> None:
    lines = re.compile(r"(?m)^( *(?:ROOT )?[%\w.-]+ =) ")
    for text in _seeds():
        apart, count = lines.subn(r"\1  ", text)
        assert count > 3
        assert spmd.parse(apart).to_string(debug_info=True) == spmd.parse(text).to_string(debug_info=True)
