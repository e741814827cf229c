// The operand whose rows are columns of the result is loaded in square blocks, which are transposed in registers.
// CHECK: nest [i0 < 512, i1 < 256], lanes 16 of i1
// CHECK-NEXT: loops tiles 16 of i0
// CHECK-NEXT: load f32 %0[i0 + 512*i1] transposed
// CHECK-NEXT: load f32 %1[256*i0 + i1]{{$}}
func.func @main(%x: tensor<256x512xf32>, %y: tensor<512x256xf32>) -> tensor<512x256xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<256x512xf32>) -> tensor<512x256xf32>
  %r = stablehlo.add %t, %y : tensor<512x256xf32>
  return %r : tensor<512x256xf32>
}
