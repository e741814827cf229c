"""How collectives name their channel, and what they gather of nothing."""

import numpy as np
import pytest

import spmd
from spmd.dialects import OPS

GATHER = """func.func @f(%x: tensor<SIZEx2xf32>) -> tensor<WHOLEx2xf32> {
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<SIZEx2xf32>) -> tensor<WHOLEx2xf32>
  return %0 : tensor<WHOLEx2xf32>
}"""


def gather(size: int, whole: int) -> str:
    return GATHER.replace("SIZE", str(size)).replace("WHOLE", str(whole))


def test_a_dimension_of_no_elements_is_gathered_to_none() -> None:
    module = spmd.parse(gather(0, 0).replace("@f", "@main"))
    nothing = np.zeros((0, 2), np.float32)
    for backends in (("llvm", "numpy"), ("numpy",)):
        results = spmd.run_parallel(module, spmd.ProcessGrid(2, 1), [[nothing]] * 2, backends=backends)
        assert [result.shape for (result,) in results] == [(0, 2)] * 2
    for size, whole in ((0, 4), (2, 0), (2, 3)):
        with pytest.raises(spmd.VerificationError, match=r"\(C6\)"):
            spmd.parse(gather(size, whole))


def test_a_channel_under_another_name_is_refused() -> None:
    text = gather(2, 4).replace("{all_gather_dim", "{channel_id = 1 : i64, all_gather_dim")
    with pytest.raises(spmd.VerificationError, match=r"channel_id: write channel_handle = #stablehlo\.channel_handle<"):
        spmd.parse(text)


def test_every_op_with_a_channel_refuses_the_other_name() -> None:
    declared = [op for op in OPS.values() if "channel_handle" in op.attribute_table]
    of_collectives = [op for op in declared if op.name not in ("stablehlo.send", "stablehlo.recv")]
    assert len(of_collectives) == 7
    for op in of_collectives:
        assert any(each.text == "the channel must be given as channel_handle" for each in op.constraints), op.name
