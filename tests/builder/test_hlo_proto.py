"""HloModuleProto, HloProto and HloSnapshot, as XLA writes them, are the programs that their text is."""

from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib import xla_client

import spmd
from launch.cli import main
from spmd.support.protobuf import bytes_field, number_field, numbers_field, packed
from tests.builder.test_hlo_dumps import PROGRAMS
from tests.mutants import mutated_bytes


def both(module: Any) -> tuple[str, str]:
    """Return what the text and the message of a module of XLA are read as."""
    options = xla_client.hlo.HloPrintOptions()
    options.print_large_constants = True
    text = spmd.parse(module.to_string(options))
    message = spmd.parse(module.as_serialized_hlo_module_proto())
    return str(text), str(message)


NAMES = ["convolution", "sort", "scan", "cond", "random", "fft", "gather", "scatter", "einsum", "pooling"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_what_jax_lowers(name: str) -> None:
    function, arguments = PROGRAMS[name]
    text, message = both(jax.jit(function).lower(*arguments).compiler_ir("hlo").get_hlo_module())
    assert text == message


INSTRUCTIONS = {
    "solve": "f32[3,3] triangular-solve(x, x), left_side=true, lower=true, transpose_a=ADJOINT",
    "cholesky": "f32[3,3] cholesky(x), lower=true",
    "precision": "f32[3,3] reduce-precision(x), exponent_bits=5, mantissa_bits=0",
    "batch norm": "(f32[3,3], f32[3], f32[3]) batch-norm-training(x, v, v), epsilon=0.001, feature_index=0",
    "dot": "f32[3,3] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={high,default}",
    "algorithm": (
        "f32[3,3] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32_x3"
    ),
    "pad": "f32[6,5] pad(x, s), padding=1_2_0x0_-2_2",
    "slice": "f32[2,1] slice(x), slice={[0:3:2], [1:2]}",
    "constant": "(s4[3], c64[2], (pred[], f8e4m3fn[2,1])) constant(({1, -7, 3}, {(1, 2), (3, 4)}, (1, {{1},{2}})))",
    "columns": "f64[2,3]{0,1} constant({{1, 2, 3}, {4, 5, 6}})",
    "numbers": "u64[4] constant({0, 300, 18446744073709551615, 1})",
    "generator": "(u64[2], u32[5]) rng-bit-generator(k), algorithm=rng_three_fry",
    "random": "f32[2] rng(s, s), distribution=rng_normal",
    "typed call": 'f32[3] custom-call(v), custom_call_target="t", api_version=API_VERSION_TYPED_FFI, '
    'backend_config={a = 1 : i32, b = "c"}',
    "call": 'f32[3] custom-call(v), custom_call_target="t", backend_config="a\\"b", '
    "output_to_operand_aliasing={{}: (0, {})}, operand_layout_constraints={f32[3]{0}}, called_computations={sum}",
    "compare": "pred[3] compare(v, v), direction=LT, type=TOTALORDER",
    "window": "f32[1,2] reduce-window(x, s), window={size=2x2 pad=1_0x0_1 stride=2x2 rhs_dilate=2x1}, to_apply=sum",
    "reduce": "f32[3] all-reduce(v), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, "
    "to_apply=sum",
    "iota groups": "f32[6] all-gather(v), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}, "
    "use_global_device_ids=true",
    "permute": "f32[3] collective-permute(v), source_target_pairs={{0,1},{1,0}}",
    "sharding": "f32[3,3] copy(x), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
    "shardings": "(f32[3], f32[3]) tuple(v, v), sharding={{maximal device=1}, {devices=[2,2]0,1,3,2 last_tile_dims="
    "{manual}}}",
    "iota": "s32[3,2] iota(), iota_dimension=1",
    "place": 'f32[3] negate(v), metadata={op_name="a/b" source_file="f.py" source_line=7}',
    "one of two": "f32[3] conditional(p, v, v), true_computation=same, false_computation=same",
    "one of some": "f32[3] conditional(i, v, v, v), branch_computations={same, same, same}",
}
MODULE = """HloModule m, replica_count=1, num_partitions=1, frontend_attributes={a="b"}
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
same { ROOT a = f32[3] parameter(0) }
ENTRY e {
  x = f32[3,3] parameter(0)
  v = f32[3] parameter(1)
  s = f32[] parameter(2)
  k = u64[2] parameter(3)
  p = pred[] parameter(4)
  i = s32[] parameter(5)
  ROOT r = """


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_what_instructions_say_of_themselves(name: str) -> None:
    text, message = both(xla_client.hlo.hlo_module_from_text(f"{MODULE}{INSTRUCTIONS[name]}\n}}\n"))
    assert text == message


def negated() -> bytes:
    text = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] negate(x)\n}\n"
    data: bytes = xla_client.hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return data


def vector(*values: float) -> bytes:
    """Return LiteralProto of a vector of f32."""
    shape = number_field(2, 11) + numbers_field(3, [len(values)])
    return bytes_field(1, shape) + bytes_field(8, np.float32(values).tobytes())


def test_a_snapshot_is_run_on_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = bytes_field(1, negated()) + bytes_field(3, b"")
    snapshot = bytes_field(1, proto) + bytes_field(2, vector(3, 4)) + bytes_field(4, b"CPU")
    file = tmp_path / "module.pb"
    for data, arguments in ((snapshot, []), (proto, ["--random", "1"]), (negated(), ["--random", "1"])):
        file.write_bytes(data)
        assert spmd.load(file).function("main")
        assert main(["run", str(file), *arguments]) == 0
        shown = capsys.readouterr().out
        assert "[-3., -4.]" in shown if not arguments else "2xfloat32" in shown
    file.write_bytes(bytes_field(1, proto) + bytes_field(2, vector(7, 8)))
    assert main(["run", str(file)]) == 0
    assert "[-7., -8.]" in capsys.readouterr().out, "the file is read again"


def test_a_snapshot_of_partitions_has_a_row_of_arguments_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [bytes_field(2, bytes_field(1, vector(value, 1))) for value in (5, 6)]
    (tmp_path / "module.pb").write_bytes(bytes_field(1, negated()) + b"".join(rows))
    assert main(["run", str(tmp_path / "module.pb"), "--grid", "2x1", "--repeat", "3"]) == 0
    out, err = capsys.readouterr()
    assert "[-5., -1.]" in out and "[-6., -1.]" in out and err.startswith("3 runs: first ")


def test_snapshots_are_compared_on_their_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  a = f32[2] abs(x)\n  ROOT r = f32[2] negate(a)\n}\n"
    other = xla_client.hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()

    def file(name: str, module: bytes, *rows: tuple[float, float]) -> str:
        held = b"".join(bytes_field(2, vector(*row)) for row in rows)
        (tmp_path / name).write_bytes(bytes_field(1, bytes_field(1, module)) + held if rows else module)
        return str(tmp_path / name)

    positive, plain = file("positive.pb", negated(), (3, 4)), file("plain.pb", other)
    for pair in ([positive, file("alike.pb", other, (3, 4))], [positive, plain], [plain, positive]):
        assert main(["compare", *pair]) == 0, "on positive numbers they agree"
    assert main(["compare", positive, plain, "--random", "0"]) == 1
    assert main(["compare", file("negative.pb", negated(), (-3, 4)), plain]) == 1
    assert main(["compare", positive, file("others.pb", other, (5, 4))]) == 2
    assert "different arguments" in capsys.readouterr().err


def test_damaged_messages_are_refused_or_read() -> None:
    random, data = Random("proto"), negated()
    for _ in range(200):
        try:
            spmd.parse(mutated_bytes(data, random))
        except spmd.SpmdError as error:
            assert str(error)


@pytest.mark.parametrize("numbers", [[], [0], [1, 127, 128, 300, 2**32, 2**63 - 1, 2**64 - 1, 5]])
def test_packed_numbers_are_read_at_once(numbers: list[int]) -> None:
    _, *data = numbers_field(1, numbers) or b"\0"
    length = 1 + (len(data) > 128)
    assert packed(bytes(data[length:])).view(np.uint64).tolist() == numbers


def test_numbers_that_end_within_one_are_refused() -> None:
    with pytest.raises(ValueError, match="end within one"):
        packed(b"\x01\x80")
