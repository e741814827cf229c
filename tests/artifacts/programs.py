"""Programs with every kind of attribute, type and region that files hold."""

# ruff: noqa: E501 (an op on a line)

ELEMENTS = """
func.func @elements(%a: tensor<2x3xf32>, %b: tensor<2xcomplex<f32>>, %c: tensor<3xi1>, %d: tensor<ui8>) -> tensor<2x3xf32> {
  %0 = stablehlo.constant dense<[[1.0, -0.0, 0x7FC00001], [0xFF800000, 1.0e-45, 3.4e38]]> : tensor<2x3xf32>
  %1 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
  %2 = stablehlo.constant dense<true> : tensor<9xi1>
  %3 = stablehlo.constant dense<[true, false, true, true, false, true, true, false, true]> : tensor<9xi1>
  %4 = stablehlo.constant dense<[-8, 7, 0]> : tensor<3xi4>
  %5 = stablehlo.constant dense<[0, 15]> : tensor<2xui4>
  %6 = stablehlo.constant dense<[(1.0, -2.0), (0.0, 3.0)]> : tensor<2xcomplex<f32>>
  %7 = stablehlo.constant dense<-1> : tensor<i64>
  %8 = stablehlo.constant dense<> : tensor<0x2xbf16>
  %9 = stablehlo.constant dense<[-9223372036854775808, 9223372036854775807]> : tensor<2xi64>
  %10 = stablehlo.constant dense<2.5> : tensor<4x0xf64>
  %11 = stablehlo.constant dense<[255, 128]> : tensor<2xui8>
  %12 = stablehlo.constant dense<0x7E01> : tensor<f16>
  %13 = stablehlo.add %a, %0 : tensor<2x3xf32>
  return %13 : tensor<2x3xf32>
}
"""

REGIONS = """
module @regions attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func private @helper(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.maximum %a, %b : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func public @main(%a: tensor<4x8xf32> {jax.arg = "x"}, %p: tensor<i1>) -> (tensor<4xf32> {jax.result_info = "r"}) {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.reduce"(%a, %z) <{dimensions = array<i64: 1>}> ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %5 = func.call @helper(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        stablehlo.return %5 : tensor<f32>
    }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %1:2 = stablehlo.while(%i = %z, %v = %0) : tensor<f32>, tensor<4xf32>
      cond {
        %5 = stablehlo.compare LT, %i, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %5 : tensor<i1>
      } do {
        %5 = stablehlo.add %i, %z : tensor<f32>
        stablehlo.return %5, %v : tensor<f32>, tensor<4xf32>
      }
    %2 = "stablehlo.if"(%p) ({
      stablehlo.return %1#1 : tensor<4xf32>
    }, {
      stablehlo.return %0 : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}
"""

STRUCTS = """
func.func @structs(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x4xf32>, %i: tensor<2x1xi32>, %o: tensor<10x4xf32>) -> tensor<2x4xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2], pad = [[0, 1], [1, 0]], rhs_dilate = [1, 2], reverse = [true, false]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>]}
    : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x4x3x4xf32>
  %1 = "stablehlo.gather"(%o, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 4>}>
    : (tensor<10x4xf32>, tensor<2x1xi32>) -> tensor<2x4xf32>
  %2 = "stablehlo.scatter"(%o, %i, %1) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %b : tensor<f32>
  }) : (tensor<10x4xf32>, tensor<2x1xi32>, tensor<2x4xf32>) -> tensor<10x4xf32>
  %3 = stablehlo.dot_general %1, %1, contracting_dims = [1] x [1] : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x2xf32>
  %4 = stablehlo.custom_call @foo(%3, %1) {api_version = 2 : i32, backend_config = "bits\\00\\FF", has_side_effect = true,
    operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[0, 1]> : tensor<2xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>], mhlo.note = {a = 1.5 : f16, b = [true, 2 : i8, "x"]}}
    : (tensor<2x2xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %5 = "stablehlo.sort"(%4) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %6 = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
  }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %5 : tensor<2x4xf32>
}
"""

TYPES = """
func.func @types(%a: tensor<4xf32>, %d: tensor<?x4xf32, #stablehlo.bounds<8, ?>>, %t: !stablehlo.token,
    %u: tuple<tensor<i32>, tuple<tensor<f64>>>) -> (tensor<4xf32>, tuple<tensor<i32>, tuple<tensor<f64>>>) {
  %0 = stablehlo.tanh %a {result_accuracy = #stablehlo.result_accuracy<ulps = 10, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4xf32>
  %1 = stablehlo.abs %d : tensor<?x4xf32, #stablehlo.bounds<8, ?>>
  %2 = stablehlo.after_all %t : !stablehlo.token
  return %0, %u : tensor<4xf32>, tuple<tensor<i32>, tuple<tensor<f64>>>
}
"""

#: Not for the reference's bindings, which do not have the quant dialect.
QUANTIZED = """
func.func @quantized(%q: tensor<4x!quant.uniform<i8<-127:127>:f32, 0.5:3>>,
    %p: tensor<2x!quant.uniform<u8:f32:0, {0.5, 0.25:1}>>) -> tensor<4xf32> {
  %0 = stablehlo.uniform_dequantize %q : (tensor<4x!quant.uniform<i8<-127:127>:f32, 0.5:3>>) -> tensor<4xf32>
  %1 = stablehlo.uniform_dequantize %p : (tensor<2x!quant.uniform<u8:f32:0, {0.5, 0.25:1}>>) -> tensor<2xf32>
  return %0 : tensor<4xf32>
}
"""

COLLECTIVES = """
func.func @collectives(%a: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = "stablehlo.all_reduce"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 7, type = 0>,
    replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %3 = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %3 : tensor<f32>
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "stablehlo.collective_permute"(%0) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}>
    : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}>
    : (tensor<4x4xf32>) -> tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}
"""

MIXED = """
module {
  sdy.mesh @mesh = <["x"=2, "y"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p1, {"y":(1)2}], replicated={"y":(2)2}>}) -> tensor<8x8xf32> {
    %0 = stablehlo.tanh %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {?}]>]>} : tensor<8x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
    %2 = sdy.manual_computation(%1) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<4x8xf32>) {
      %4 = stablehlo.negate %b : tensor<4x8xf32>
      sdy.return %4 : tensor<4x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %3 = chlo.erf %2 : tensor<8x8xf32> -> tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }
}
"""

PROGRAMS = {
    "elements": ELEMENTS,
    "regions": REGIONS,
    "structs": STRUCTS,
    "types": TYPES,
    "collectives": COLLECTIVES,
    "mixed": MIXED,
}

#: The first version of VHLO that can hold each, where that is not the first of all.
SINCE = {"types": "1.10", "mixed": "1.11"}

REDUCE = """
func.func @f(%a: tensor<4xf32>) -> tensor<f64> {
  %z = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = "stablehlo.reduce"(%a, %z) <{dimensions = array<i64: 0>}> ({
    ^bb0(%x: tensor<f64>, %y: tensor<f64>):
      %1 = stablehlo.add %x, %y : tensor<f64>
      stablehlo.return %1 : tensor<f64>
  }) : (tensor<4xf32>, tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
"""

#: What each version brought, by an op that needs it: (the version before, text).
NEWS = {
    "f8E4M3FNUZ": ("0.9", "func.func @f(%a: tensor<f8E4M3FNUZ>) -> tensor<f8E4M3FNUZ> { return %a : tensor<f8E4M3FNUZ> }"),
    "promotion": ("0.16", REDUCE),
    "batching": (
        "1.0",
        """func.func @f(%a: tensor<3x4xf32>, %i: tensor<3x1xi32>) -> tensor<3xf32> {
  %0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0],
    start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}>
    : (tensor<3x4xf32>, tensor<3x1xi32>) -> tensor<3xf32>
  return %0 : tensor<3xf32> }""",
    ),
    "dictionary": (
        "1.2",
        """func.func @f(%a: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @g(%a) {api_version = 4 : i32, backend_config = {x = 1 : i32}} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32> }""",
    ),
    "tan": ("1.3", "func.func @f(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.tan %a : tensor<f32>\n return %0 : tensor<f32> }"),
    "algorithm": (
        "1.5",
        """func.func @f(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32,
    accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,
    allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32> }""",
    ),
}  # fmt: skip

UNKNOWN = 'func.func @f(%a: tensor<f32>) { %0:2 = "my.op"(%a) ({ "my.end"() : () -> () }) {k = #my.attr<1>, t = !my.type<x>} : (tensor<f32>) -> (!my.type<x>, i17)\n return }'
DOUBLE = "func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = stablehlo.add %a, %a : tensor<3xf32>\n return %0 : tensor<3xf32> }"
