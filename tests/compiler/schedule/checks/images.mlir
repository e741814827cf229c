// The padded images of a convolution are made one at a time, in memory of one image.
// CHECK: library call, tasks 1, tiles {{[0-9]+x[0-9]+}} outlined, images of 36992 bytes
// CHECK-NEXT: unit points over 16x34x34x8 {{.*}} : stablehlo.pad
// CHECK-NEXT: op stablehlo.convolution
// CHECK: buffers scratch in arena at {{[0-9]+}} (36992 bytes)
func.func @main(%x: tensor<16x32x32x8xf32>, %k: tensor<3x3x8x8xf32>) -> tensor<16x32x32x8xf32> {
  %r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<16x32x32x8xf32>, tensor<3x3x8x8xf32>) -> tensor<16x32x32x8xf32>
  return %r : tensor<16x32x32x8xf32>
}
