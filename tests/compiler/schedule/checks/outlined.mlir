// Several nests are functions of their own, equal ones the same; a small one in a loop is not worth a call.
// CHECK: nest [i0 < 1000], lanes 16 of i0, outlined
// CHECK: block 1
// CHECK: nest [i0 < 100], lanes 16 of i0{{$}}
func.func @main(%x: tensor<1000xf32>, %y: tensor<100xf32>, %n: tensor<i32>) -> (tensor<1000xf32>, tensor<100xf32>) {
  %0 = stablehlo.tanh %x : tensor<1000xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last:2 = stablehlo.while(%i = %zero, %v = %y) : tensor<i32>, tensor<100xf32>
    cond {
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %h = stablehlo.tanh %v : tensor<100xf32>
      stablehlo.return %next, %h : tensor<i32>, tensor<100xf32>
    }
  return %0, %last#1 : tensor<1000xf32>, tensor<100xf32>
}
