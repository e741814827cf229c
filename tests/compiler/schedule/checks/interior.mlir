// Inside, a padded array needs no comparisons of indices: the loops are split where that is most of them.
// CHECK: nest [i0 < 512, i1 < 512], lanes 16 of i1
// CHECK-NEXT: loops interior [1 <= i0 < 511, 1 <= i1 < 511]
// CHECK-NEXT: load f32 %0[510*i0 + i1 + -511] where masked
// Few points are not split.
// CHECK: nest [i0 < 12, i1 < 12]
// CHECK-NEXT: load
func.func @main(%x: tensor<510x510xf32>, %y: tensor<10x10xf32>) -> (tensor<512x512xf32>, tensor<12x12xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.pad %x, %zero, low = [1, 1], high = [1, 1], interior = [0, 0]
    : (tensor<510x510xf32>, tensor<f32>) -> tensor<512x512xf32>
  %r = stablehlo.tanh %p : tensor<512x512xf32>
  %q = stablehlo.pad %y, %zero, low = [1, 1], high = [1, 1], interior = [0, 0]
    : (tensor<10x10xf32>, tensor<f32>) -> tensor<12x12xf32>
  %s = stablehlo.tanh %q : tensor<12x12xf32>
  return %r, %s : tensor<512x512xf32>, tensor<12x12xf32>
}
