// A product of a matrix and a vector reads the matrix once, as a fold, and calls no library.
// CHECK-NOT: library call
// CHECK: unit reduction over 512x256 fold [1] of () -> (%[[R:[0-9]+]]) : stablehlo.dot_general
// CHECK-NEXT: nest [i0 < 512, i1 < 256], lanes 64 of i1
// CHECK-NEXT: load f32 %0[256*i0 + i1]
// CHECK-NEXT: load f32 %1[i1]
// CHECK-NEXT: fold [i1] add.f32 -> f32 %[[R]][i0]
// CHECK-NOT: library call
func.func @main(%m: tensor<512x256xf32>, %v: tensor<256xf32>) -> tensor<512xf32> {
  %r = stablehlo.dot_general %m, %v, contracting_dims = [1] x [0]
    : (tensor<512x256xf32>, tensor<256xf32>) -> tensor<512xf32>
  return %r : tensor<512xf32>
}
