// Memory is used again once what lay there was read for the last time, and a result's before the result is made.
// CHECK: region {{.*}} arena 0
// CHECK: step 0
// CHECK: buffers %1 in argument 1 (65536 bytes)
// CHECK: step 1
// CHECK: buffers %2 in argument 1 (65536 bytes)
func.func @main(%x: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
    : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %b = stablehlo.tanh %a : tensor<128x128xf32>
  return %b : tensor<128x128xf32>
}
