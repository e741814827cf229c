// Lanes go over some iterations of the loop around a short one, so that vectors are full.
// CHECK: lanes {{16|32|64}} of i1 flattened with i0
func.func @main(%a: tensor<1000x3xf32>, %b: tensor<3xf32>) -> tensor<1000x3xf32> {
  %c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<1000x3xf32>
  %d = stablehlo.multiply %a, %c : tensor<1000x3xf32>
  return %d : tensor<1000x3xf32>
}
