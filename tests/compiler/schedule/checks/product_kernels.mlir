// THREADS: 4
// A small product is tiled, a large one calls BLAS in ranges of rows, and many in a batch are tasks as they are.
// CHECK: step 0: library call, tasks 1, tiles {{[0-9]+x[0-9]+$}}
// CHECK: step 1: library call, tasks {{[0-9]+}}, BLAS{{( by [0-9]+ rows)?$}}
// CHECK: step 2: library call, tasks {{[0-9]+}}, BLAS{{$}}
// Products of 8-bit integers have kernels of their own.
// CHECK: step 3: library call, tasks {{[0-9]+}}, integer {{pairs|tiles}} by {{[0-9]+}} rows
func.func @main(%a: tensor<8x8xf32>, %b: tensor<1024x1024xf32>, %c: tensor<64x200x200xf32>, %d: tensor<512x512xi8>)
    -> (tensor<8x8xf32>, tensor<1024x1024xf32>, tensor<64x200x200xf32>, tensor<512x512xi32>) {
  %0 = stablehlo.dot %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.dot %b, %b : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %2 = stablehlo.dot_general %c, %c, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<64x200x200xf32>, tensor<64x200x200xf32>) -> tensor<64x200x200xf32>
  %3 = stablehlo.dot %d, %d : (tensor<512x512xi8>, tensor<512x512xi8>) -> tensor<512x512xi32>
  return %0, %1, %2, %3 : tensor<8x8xf32>, tensor<1024x1024xf32>, tensor<64x200x200xf32>, tensor<512x512xi32>
}
