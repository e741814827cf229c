// Attention goes batch by batch: its weights, 2 MiB, take the memory of one batch for each task.
// THREADS: 2
// CHECK: region (%0, %1) -> ({{%[0-9]+}}), threads 2, arena 4194304
// CHECK: batch by batch, batches 8, tasks 8, room 524288
// CHECK-NEXT: op stablehlo.dot_general
// CHECK-NEXT: unit points over 8x256x256
// CHECK-NEXT: op stablehlo.dot_general
// CHECK: nest [i0 < 8, i2 < 65536], shared [i0], lanes 16 of i2, batch i0, group 1
// CHECK: buffers scratch in arena at 0 (4194304 bytes)
// CHECK-NEXT: cost {{[0-9]+}} operations, 262144 bytes read, 131072 bytes written
// CHECK-NOT: step 1
func.func @main(%q: tensor<8x256x16xf32>, %k: tensor<8x256x16xf32>) -> tensor<8x256x16xf32> {
  %p = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<8x256x16xf32>, tensor<8x256x16xf32>) -> tensor<8x256x256xf32>
  %t = stablehlo.tanh %p : tensor<8x256x256xf32>
  %r = stablehlo.dot_general %t, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<8x256x256xf32>, tensor<8x256x16xf32>) -> tensor<8x256x16xf32>
  return %r : tensor<8x256x16xf32>
}
