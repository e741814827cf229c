// What a loop updates is carried in place, and what is made anew from all of it in two buffers that change places.
// CHECK: : loop
// CHECK: buffers %[[A:[0-9]+]] carried in place in
// CHECK: buffers %[[B:[0-9]+]] carried swapped in
// CHECK: unit update over
// CHECK: store f32 %{{[0-9]+}}[computed] = constant
// CHECK-NOT: copied from
func.func @main(%most: tensor<i32>, %x: tensor<4096xf32>, %y: tensor<64x64xf32>) -> (tensor<4096xf32>, tensor<64x64xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %n, %u, %t = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<4096xf32>, tensor<64x64xf32>
    cond { %c = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %v = stablehlo.constant dense<2.0> : tensor<1xf32>
      %w = stablehlo.dynamic_update_slice %a, %v, %i : (tensor<4096xf32>, tensor<1xf32>, tensor<i32>) -> tensor<4096xf32>
      %s = stablehlo.transpose %b, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
      stablehlo.return %j, %w, %s : tensor<i32>, tensor<4096xf32>, tensor<64x64xf32> }
  return %u, %t : tensor<4096xf32>, tensor<64x64xf32>
}
