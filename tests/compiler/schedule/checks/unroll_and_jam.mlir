// The iterations of a short loop that compute different things are unrolled, and the loop around it fills the lanes.
// CHECK: unit points over 1000x2 {{.*}}concatenate
// CHECK-NEXT: nest [i0 < 1000, i1 < 2], lanes 16 of i0 unrolled i1
func.func @main(%a: tensor<1000x1xf32>, %b: tensor<1000x1xf32>) -> tensor<1000x2xf32> {
  %c = stablehlo.sine %a : tensor<1000x1xf32>
  %d = stablehlo.sqrt %b : tensor<1000x1xf32>
  %e = stablehlo.concatenate %c, %d, dim = 1 : (tensor<1000x1xf32>, tensor<1000x1xf32>) -> tensor<1000x2xf32>
  %f = stablehlo.add %e, %e : tensor<1000x2xf32>
  return %f : tensor<1000x2xf32>
}
