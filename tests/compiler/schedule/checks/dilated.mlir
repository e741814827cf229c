// Padding between elements is one iteration of a short loop, which is unrolled: no index is divided at run time. What
// is left of an odd number of points is a nest of its own, and padding within padding is stored.
// CHECK: unit points over 2048 of {{.*}} : pad x2, add
// CHECK-NEXT: nest [i0 < 1024, i1 < 2], lanes 16 of i0 unrolled i1
// CHECK-NEXT: load f32 {{%[0-9]}}[i0]
// CHECK-NEXT: load f32 {{%[0-9]}}[i0]
// CHECK-NEXT: store f32 {{%[0-9]+}}[2*i0 + i1]
// CHECK-NEXT: buffers
// CHECK: unit points over 4095 of {{.*}} : stablehlo.pad
// CHECK-NEXT: nest [i0 < 2047, i1 < 2], lanes 16 of i0 unrolled i1
// CHECK-NEXT: load f32 {{%[0-9]+}}[i0]
// CHECK-NEXT: store f32 {{%[0-9]+}}[2*i0 + i1]
// CHECK-NEXT: nest []
func.func @main(%a: tensor<1024xf32>, %b: tensor<1024xf32>) -> tensor<4095xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %x = stablehlo.pad %a, %z, low = [0], high = [1], interior = [1] : (tensor<1024xf32>, tensor<f32>) -> tensor<2048xf32>
  %y = stablehlo.pad %b, %z, low = [1], high = [0], interior = [1] : (tensor<1024xf32>, tensor<f32>) -> tensor<2048xf32>
  %s = stablehlo.add %x, %y : tensor<2048xf32>
  %r = stablehlo.pad %s, %z, low = [0], high = [0], interior = [1] : (tensor<2048xf32>, tensor<f32>) -> tensor<4095xf32>
  return %r : tensor<4095xf32>
}
