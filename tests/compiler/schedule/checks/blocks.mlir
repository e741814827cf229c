// A long sum has blocks of 64 vectors, and blocks of these; a short one has none.
// CHECK: nest [i0 < 33554432], lanes 64 of i0
// CHECK-NEXT: loops blocks 262144 of 4096{{$}}
// CHECK: nest [i0 < 4096], lanes 64 of i0
// CHECK-NEXT: load
// Blocks of a few columns are interleaved, to hide the latency of additions.
// CHECK: nest [i0 < 1000, i1 < 16], lanes 16 of i1
// CHECK-NEXT: loops blocks 64, interleaved 4
func.func @main(%x: tensor<33554432xf32>, %y: tensor<4096xf32>, %z: tensor<1000x16xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<33554432xf32>, tensor<f32>) -> tensor<f32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4096xf32>, tensor<f32>) -> tensor<f32>
  %t = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1000x16xf32>, tensor<f32>) -> tensor<16xf32>
  return %r, %s, %t : tensor<f32>, tensor<f32>, tensor<16xf32>
}
