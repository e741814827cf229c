// A softmax goes row by row: what is folded of a row, and its exponentials, lie in memory of one row.
// CHECK: step 0: row by row
// CHECK: unit reduction over 64x1000 fold [1]
// CHECK: unit reduction over 64x1000 fold [1]
// CHECK: unit points over 64x1000
// CHECK: nest [i0 < 64, i1 < 1000], shared [i0]
// CHECK: arena at {{[0-9]+}} (4000 bytes)
// CHECK: cost {{[0-9]+}} operations, 256000 bytes read, 256000 bytes written
// CHECK-NOT: step 1
func.func @main(%x: tensor<64x1000xf32>) -> tensor<64x1000xf32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1]
    : (tensor<64x1000xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<64xf32>) -> tensor<64x1000xf32>
  %d = stablehlo.subtract %x, %b : tensor<64x1000xf32>
  %e = stablehlo.exponential %d : tensor<64x1000xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x1000xf32>, tensor<f32>) -> tensor<64xf32>
  %c = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x1000xf32>
  %r = stablehlo.divide %e, %c : tensor<64x1000xf32>
  return %r : tensor<64x1000xf32>
}
