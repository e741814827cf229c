// Points are cut along their loop, and a fold of everything at the blocks that it is folded by anyway.
// THREADS: 4
// CHECK: unit points over 1048576
// CHECK-NEXT: nest [i0 < 1048576], lanes 16 of i0, tasks [[N:[0-9]+]] of i0 by
// CHECK: unit reduction over 1048576 fold [0]
// CHECK-NEXT: nest [i0 < 1048576], lanes 64 of i0, tasks {{[0-9]+}} of blocks by
func.func @main(%x: tensor<1048576xf32>, %y: tensor<1048576xf32>) -> (tensor<1048576xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.tanh %x : tensor<1048576xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>
  return %e, %s : tensor<1048576xf32>, tensor<f32>
}
