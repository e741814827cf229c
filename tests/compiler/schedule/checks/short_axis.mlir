// Rows of ten are lanes: their elements are transposed as they are loaded, or, if they are stored as well, row by row.
// CHECK: nest [i0 < 3000, i1 < 10], lanes 16 of i0
// CHECK-NEXT: loops rows 16 transposed
// CHECK-NEXT: load f32 %0[10*i0 + i1] transposed
// CHECK: nest [i0 < 3000, i1 < 10], lanes 16 of i0
// CHECK-NEXT: loops rows 16 as vectors
// CHECK-NEXT: load f32 %1[10*i0 + i1]{{$}}
func.func @main(%x: tensor<3000x10xf32>, %y: tensor<3000x10xf32>)
    -> (tensor<3000xf32>, tensor<3000xf32>, tensor<3000x10xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<3000x10xf32>, tensor<f32>) -> tensor<3000xf32>
  %e = stablehlo.exponential %y : tensor<3000x10xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<3000x10xf32>, tensor<f32>) -> tensor<3000xf32>
  return %r, %s, %e : tensor<3000xf32>, tensor<3000xf32>, tensor<3000x10xf32>
}
