// Columns of a large array are summed row by row, for a tile of columns at a time; rows are summed in blocks.
// CHECK: nest [i0 < 2048, i1 < 1024], lanes 64 of i1
// CHECK-NEXT: loops tiles 1024 of i1, blocks 64{{$}}
// Few rows need no blocks, and few elements no tiles.
// CHECK: nest [i0 < 8, i1 < 65536]
// CHECK-NEXT: loops tiles 1024 of i1{{$}}
// CHECK: nest [i0 < 100, i1 < 64]
// CHECK-NEXT: load
func.func @main(%x: tensor<2048x1024xf32>, %y: tensor<8x65536xf32>, %z: tensor<100x64xf32>)
    -> (tensor<1024xf32>, tensor<65536xf32>, tensor<64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<2048x1024xf32>, tensor<f32>) -> tensor<1024xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<8x65536xf32>, tensor<f32>) -> tensor<65536xf32>
  %t = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<100x64xf32>, tensor<f32>) -> tensor<64xf32>
  return %r, %s, %t : tensor<1024xf32>, tensor<65536xf32>, tensor<64xf32>
}
