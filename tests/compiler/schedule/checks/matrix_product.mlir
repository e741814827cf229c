// A product of matrices is a call of a library, in tasks where threads can share it.
// THREADS: 4
// CHECK: step 0: library call, tasks {{([2-9]|1[0-6])}}, tiles {{[0-9]+x[0-9]+}} outlined by {{[0-9]+}} rows
// CHECK-NEXT: op stablehlo.dot_general (%0, %1) -> (%2)
func.func @main(%a: tensor<512x512xi32>, %b: tensor<512x512xi32>) -> tensor<512x512xi32> {
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<512x512xi32>, tensor<512x512xi32>) -> tensor<512x512xi32>
  return %r : tensor<512x512xi32>
}
