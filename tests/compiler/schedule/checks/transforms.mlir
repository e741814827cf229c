// The radices of a transform; one of a prime length goes through a longer one, one of real numbers through half of them.
// CHECK: step 0: library call, tasks 1, FFT of 360 complex, radices 4 2 3 3 5
// CHECK: step 1: library call, tasks 1, FFT of 97 complex through 240, radices 4 4 3 5
// CHECK: step 2: library call, tasks 1, RFFT of 500 complex, radices 4 5 5 5
func.func @main(%x: tensor<2x360xcomplex<f32>>, %y: tensor<97xcomplex<f32>>, %z: tensor<1000xf32>)
    -> (tensor<2x360xcomplex<f32>>, tensor<97xcomplex<f32>>, tensor<501xcomplex<f32>>) {
  %0 = stablehlo.fft %x, type = FFT, length = [360] : (tensor<2x360xcomplex<f32>>) -> tensor<2x360xcomplex<f32>>
  %1 = stablehlo.fft %y, type = FFT, length = [97] : (tensor<97xcomplex<f32>>) -> tensor<97xcomplex<f32>>
  %2 = stablehlo.fft %z, type = RFFT, length = [1000] : (tensor<1000xf32>) -> tensor<501xcomplex<f32>>
  return %0, %1, %2 : tensor<2x360xcomplex<f32>>, tensor<97xcomplex<f32>>, tensor<501xcomplex<f32>>
}
