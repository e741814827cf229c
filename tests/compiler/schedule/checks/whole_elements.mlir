// Complex numbers that are only moved go as one number of 64 bits each, not as two parts.
// CHECK: : stablehlo.transpose
// CHECK-NEXT: nest [i0 < 48, i1 < 64]
// CHECK-NEXT: loops tiles 16 of i0
// CHECK-NEXT: load i64 %0[i0 + 48*i1] transposed
// CHECK-NEXT: store i64 %1[64*i0 + i1] = loaded
// CHECK-NOT: f32
func.func @main(%z: tensor<64x48xcomplex<f32>>) -> tensor<48x64xcomplex<f32>> {
  %t = stablehlo.transpose %z, dims = [1, 0] : (tensor<64x48xcomplex<f32>>) -> tensor<48x64xcomplex<f32>>
  return %t : tensor<48x64xcomplex<f32>>
}
