module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<16384x1024xf32>, %arg1: tensor<256x1024xf32>, %arg2: tensor<1024xf32>, %arg3: tensor<1024x16x64xf32>, %arg4: tensor<1024x16x64xf32>, %arg5: tensor<1024x16x64xf32>, %arg6: tensor<16x64x1024xf32>, %arg7: tensor<1024xf32>, %arg8: tensor<1024x4096xf32>, %arg9: tensor<4096x1024xf32>, %arg10: tensor<1024xf32>, %arg11: tensor<1024x16x64xf32>, %arg12: tensor<1024x16x64xf32>, %arg13: tensor<1024x16x64xf32>, %arg14: tensor<16x64x1024xf32>, %arg15: tensor<1024xf32>, %arg16: tensor<1024x4096xf32>, %arg17: tensor<4096x1024xf32>, %arg18: tensor<1024xf32>, %arg19: tensor<1024x16384xf32>, %arg20: tensor<16384x1024xf32>, %arg21: tensor<256x1024xf32>, %arg22: tensor<1024xf32>, %arg23: tensor<1024x16x64xf32>, %arg24: tensor<1024x16x64xf32>, %arg25: tensor<1024x16x64xf32>, %arg26: tensor<16x64x1024xf32>, %arg27: tensor<1024xf32>, %arg28: tensor<1024x4096xf32>, %arg29: tensor<4096x1024xf32>, %arg30: tensor<1024xf32>, %arg31: tensor<1024x16x64xf32>, %arg32: tensor<1024x16x64xf32>, %arg33: tensor<1024x16x64xf32>, %arg34: tensor<16x64x1024xf32>, %arg35: tensor<1024xf32>, %arg36: tensor<1024x4096xf32>, %arg37: tensor<4096x1024xf32>, %arg38: tensor<1024xf32>, %arg39: tensor<1024x16384xf32>, %arg40: tensor<16384x1024xf32>, %arg41: tensor<256x1024xf32>, %arg42: tensor<1024xf32>, %arg43: tensor<1024x16x64xf32>, %arg44: tensor<1024x16x64xf32>, %arg45: tensor<1024x16x64xf32>, %arg46: tensor<16x64x1024xf32>, %arg47: tensor<1024xf32>, %arg48: tensor<1024x4096xf32>, %arg49: tensor<4096x1024xf32>, %arg50: tensor<1024xf32>, %arg51: tensor<1024x16x64xf32>, %arg52: tensor<1024x16x64xf32>, %arg53: tensor<1024x16x64xf32>, %arg54: tensor<16x64x1024xf32>, %arg55: tensor<1024xf32>, %arg56: tensor<1024x4096xf32>, %arg57: tensor<4096x1024xf32>, %arg58: tensor<1024xf32>, %arg59: tensor<1024x16384xf32>, %arg60: tensor<4096x256xi32>, %arg61: tensor<4096x256xi32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<16384x1024xf32> {jax.result_info = "result[1]"}, tensor<256x1024xf32> {jax.result_info = "result[2]"}, tensor<1024xf32> {jax.result_info = "result[3]"}, tensor<1024x16x64xf32> {jax.result_info = "result[4]"}, tensor<1024x16x64xf32> {jax.result_info = "result[5]"}, tensor<1024x16x64xf32> {jax.result_info = "result[6]"}, tensor<16x64x1024xf32> {jax.result_info = "result[7]"}, tensor<1024xf32> {jax.result_info = "result[8]"}, tensor<1024x4096xf32> {jax.result_info = "result[9]"}, tensor<4096x1024xf32> {jax.result_info = "result[10]"}, tensor<1024xf32> {jax.result_info = "result[11]"}, tensor<1024x16x64xf32> {jax.result_info = "result[12]"}, tensor<1024x16x64xf32> {jax.result_info = "result[13]"}, tensor<1024x16x64xf32> {jax.result_info = "result[14]"}, tensor<16x64x1024xf32> {jax.result_info = "result[15]"}, tensor<1024xf32> {jax.result_info = "result[16]"}, tensor<1024x4096xf32> {jax.result_info = "result[17]"}, tensor<4096x1024xf32> {jax.result_info = "result[18]"}, tensor<1024xf32> {jax.result_info = "result[19]"}, tensor<1024x16384xf32> {jax.result_info = "result[20]"}, tensor<16384x1024xf32> {jax.result_info = "result[21]"}, tensor<256x1024xf32> {jax.result_info = "result[22]"}, tensor<1024xf32> {jax.result_info = "result[23]"}, tensor<1024x16x64xf32> {jax.result_info = "result[24]"}, tensor<1024x16x64xf32> {jax.result_info = "result[25]"}, tensor<1024x16x64xf32> {jax.result_info = "result[26]"}, tensor<16x64x1024xf32> {jax.result_info = "result[27]"}, tensor<1024xf32> {jax.result_info = "result[28]"}, tensor<1024x4096xf32> {jax.result_info = "result[29]"}, tensor<4096x1024xf32> {jax.result_info = "result[30]"}, tensor<1024xf32> {jax.result_info = "result[31]"}, tensor<1024x16x64xf32> {jax.result_info = "result[32]"}, tensor<1024x16x64xf32> {jax.result_info = "result[33]"}, tensor<1024x16x64xf32> {jax.result_info = "result[34]"}, tensor<16x64x1024xf32> {jax.result_info = "result[35]"}, tensor<1024xf32> {jax.result_info = "result[36]"}, tensor<1024x4096xf32> {jax.result_info = "result[37]"}, tensor<4096x1024xf32> {jax.result_info = "result[38]"}, tensor<1024xf32> {jax.result_info = "result[39]"}, tensor<1024x16384xf32> {jax.result_info = "result[40]"}, tensor<16384x1024xf32> {jax.result_info = "result[41]"}, tensor<256x1024xf32> {jax.result_info = "result[42]"}, tensor<1024xf32> {jax.result_info = "result[43]"}, tensor<1024x16x64xf32> {jax.result_info = "result[44]"}, tensor<1024x16x64xf32> {jax.result_info = "result[45]"}, tensor<1024x16x64xf32> {jax.result_info = "result[46]"}, tensor<16x64x1024xf32> {jax.result_info = "result[47]"}, tensor<1024xf32> {jax.result_info = "result[48]"}, tensor<1024x4096xf32> {jax.result_info = "result[49]"}, tensor<4096x1024xf32> {jax.result_info = "result[50]"}, tensor<1024xf32> {jax.result_info = "result[51]"}, tensor<1024x16x64xf32> {jax.result_info = "result[52]"}, tensor<1024x16x64xf32> {jax.result_info = "result[53]"}, tensor<1024x16x64xf32> {jax.result_info = "result[54]"}, tensor<16x64x1024xf32> {jax.result_info = "result[55]"}, tensor<1024xf32> {jax.result_info = "result[56]"}, tensor<1024x4096xf32> {jax.result_info = "result[57]"}, tensor<4096x1024xf32> {jax.result_info = "result[58]"}, tensor<1024xf32> {jax.result_info = "result[59]"}, tensor<1024x16384xf32> {jax.result_info = "result[60]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4096x256xi32>
    %1 = stablehlo.compare LT, %arg60, %0, SIGNED : (tensor<4096x256xi32>, tensor<4096x256xi32>) -> tensor<4096x256xi1>
    %c_0 = stablehlo.constant dense<16384> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4096x256xi32>
    %3 = stablehlo.add %arg60, %2 : tensor<4096x256xi32>
    %4 = stablehlo.select %1, %3, %arg60 : tensor<4096x256xi1>, tensor<4096x256xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<4096x256xi32>) -> tensor<4096x256x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1024>}> : (tensor<16384x1024xf32>, tensor<4096x256x1xi32>) -> tensor<4096x256x1024xf32>
    %7 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<256x1024xf32>) -> tensor<1x256x1024xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<1x256x1024xf32>) -> tensor<4096x256x1024xf32>
    %9 = stablehlo.add %6, %8 : tensor<4096x256x1024xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.reduce(%9 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_1 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %13 = stablehlo.divide %11, %12 : tensor<4096x256x1xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %15 = stablehlo.subtract %9, %14 : tensor<4096x256x1024xf32>
    %16 = stablehlo.multiply %15, %15 : tensor<4096x256x1024xf32>
    %cst_2 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %17 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<4096x256x1024xf32>
    %18 = stablehlo.multiply %17, %15 : tensor<4096x256x1024xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %19 = stablehlo.reduce(%16 init: %cst_3) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_4 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %22 = stablehlo.divide %20, %21 : tensor<4096x256x1xf32>
    %cst_5 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %24 = stablehlo.add %22, %23 : tensor<4096x256x1xf32>
    %25 = stablehlo.rsqrt %24 : tensor<4096x256x1xf32>
    %26 = stablehlo.divide %25, %24 : tensor<4096x256x1xf32>
    %cst_6 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %27 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %28 = stablehlo.multiply %27, %26 : tensor<4096x256x1xf32>
    %29 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %30 = stablehlo.multiply %15, %29 : tensor<4096x256x1024xf32>
    %31 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %32 = stablehlo.broadcast_in_dim %31, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %33 = stablehlo.multiply %30, %32 : tensor<4096x256x1024xf32>
    %34 = stablehlo.dot_general %33, %arg3, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x16x64xf32>
    %35 = stablehlo.dot_general %33, %arg4, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x16x64xf32>
    %36 = stablehlo.dot_general %33, %arg5, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x16x64xf32>
    %37 = stablehlo.dot_general %34, %35, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x256xf32>
    %cst_7 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %38 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<4096x16x256x256xf32>
    %39 = stablehlo.divide %37, %38 : tensor<4096x16x256x256xf32>
    %c_8 = stablehlo.constant dense<true> : tensor<i1>
    %40 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i1>) -> tensor<256x256xi1>
    %41 = call @tril(%40) : (tensor<256x256xi1>) -> tensor<256x256xi1>
    %cst_9 = stablehlo.constant dense<-1.000000e+09> : tensor<f32>
    %42:2 = call @_where(%41, %39, %cst_9) : (tensor<256x256xi1>, tensor<4096x16x256x256xf32>, tensor<f32>) -> (tensor<4096x16x256x256xf32>, tensor<4096x16x256x256xi1>)
    %cst_10 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %43 = stablehlo.reduce(%42#0 init: %cst_10) applies stablehlo.maximum across dimensions = [3] : (tensor<4096x16x256x256xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %cst_11 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %44 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<4096x16x256xf32>
    %45 = stablehlo.maximum %44, %43 : tensor<4096x16x256xf32>
    %46 = stablehlo.broadcast_in_dim %45, dims = [0, 1, 2] : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x1xf32>
    %47 = stablehlo.broadcast_in_dim %46, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %48 = stablehlo.subtract %42#0, %47 : tensor<4096x16x256x256xf32>
    %49 = stablehlo.exponential %48 : tensor<4096x16x256x256xf32>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %50 = stablehlo.reduce(%49 init: %cst_12) applies stablehlo.add across dimensions = [3] : (tensor<4096x16x256x256xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %51 = stablehlo.broadcast_in_dim %50, dims = [0, 1, 2] : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x1xf32>
    %52 = stablehlo.broadcast_in_dim %51, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %53 = stablehlo.divide %49, %52 : tensor<4096x16x256x256xf32>
    %54 = stablehlo.multiply %51, %51 : tensor<4096x16x256x1xf32>
    %cst_13 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %55 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<4096x16x256x1xf32>
    %56 = stablehlo.divide %55, %54 : tensor<4096x16x256x1xf32>
    %57 = stablehlo.dot_general %36, %53, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x16x256x256xf32>) -> tensor<4096x16x64x256xf32>
    %58 = stablehlo.transpose %57, dims = [0, 3, 1, 2] : (tensor<4096x16x64x256xf32>) -> tensor<4096x256x16x64xf32>
    %59 = stablehlo.dot_general %58, %arg6, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<16x64x1024xf32>) -> tensor<4096x256x1024xf32>
    %60 = stablehlo.add %9, %59 : tensor<4096x256x1024xf32>
    %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %61 = stablehlo.reduce(%60 init: %cst_14) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %62 = stablehlo.broadcast_in_dim %61, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_15 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %64 = stablehlo.divide %62, %63 : tensor<4096x256x1xf32>
    %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %66 = stablehlo.subtract %60, %65 : tensor<4096x256x1024xf32>
    %67 = stablehlo.multiply %66, %66 : tensor<4096x256x1024xf32>
    %cst_16 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %68 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<4096x256x1024xf32>
    %69 = stablehlo.multiply %68, %66 : tensor<4096x256x1024xf32>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %70 = stablehlo.reduce(%67 init: %cst_17) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %71 = stablehlo.broadcast_in_dim %70, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_18 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %72 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %73 = stablehlo.divide %71, %72 : tensor<4096x256x1xf32>
    %cst_19 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %74 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %75 = stablehlo.add %73, %74 : tensor<4096x256x1xf32>
    %76 = stablehlo.rsqrt %75 : tensor<4096x256x1xf32>
    %77 = stablehlo.divide %76, %75 : tensor<4096x256x1xf32>
    %cst_20 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %78 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %79 = stablehlo.multiply %78, %77 : tensor<4096x256x1xf32>
    %80 = stablehlo.broadcast_in_dim %76, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %81 = stablehlo.multiply %66, %80 : tensor<4096x256x1024xf32>
    %82 = stablehlo.broadcast_in_dim %arg7, dims = [2] : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %83 = stablehlo.broadcast_in_dim %82, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %84 = stablehlo.multiply %81, %83 : tensor<4096x256x1024xf32>
    %85 = stablehlo.dot_general %84, %arg8, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x4096xf32>) -> tensor<4096x256x4096xf32>
    %86 = stablehlo.multiply %85, %85 : tensor<4096x256x4096xf32>
    %87 = stablehlo.multiply %86, %85 : tensor<4096x256x4096xf32>
    %88 = stablehlo.multiply %85, %85 : tensor<4096x256x4096xf32>
    %cst_21 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %89 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %90 = stablehlo.multiply %89, %88 : tensor<4096x256x4096xf32>
    %cst_22 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %91 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %92 = stablehlo.multiply %91, %87 : tensor<4096x256x4096xf32>
    %93 = stablehlo.add %85, %92 : tensor<4096x256x4096xf32>
    %cst_23 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %94 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %95 = stablehlo.multiply %94, %93 : tensor<4096x256x4096xf32>
    %96 = stablehlo.tanh %95 : tensor<4096x256x4096xf32>
    %cst_24 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %97 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %98 = stablehlo.subtract %97, %96 : tensor<4096x256x4096xf32>
    %cst_25 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %99 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %100 = stablehlo.add %99, %96 : tensor<4096x256x4096xf32>
    %cst_26 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %101 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %102 = stablehlo.multiply %101, %100 : tensor<4096x256x4096xf32>
    %103 = stablehlo.multiply %85, %102 : tensor<4096x256x4096xf32>
    %104 = stablehlo.dot_general %103, %arg9, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x4096xf32>, tensor<4096x1024xf32>) -> tensor<4096x256x1024xf32>
    %105 = stablehlo.add %60, %104 : tensor<4096x256x1024xf32>
    %cst_27 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %106 = stablehlo.reduce(%105 init: %cst_27) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %107 = stablehlo.broadcast_in_dim %106, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_28 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %108 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %109 = stablehlo.divide %107, %108 : tensor<4096x256x1xf32>
    %110 = stablehlo.broadcast_in_dim %109, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %111 = stablehlo.subtract %105, %110 : tensor<4096x256x1024xf32>
    %112 = stablehlo.multiply %111, %111 : tensor<4096x256x1024xf32>
    %cst_29 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %113 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<4096x256x1024xf32>
    %114 = stablehlo.multiply %113, %111 : tensor<4096x256x1024xf32>
    %cst_30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %115 = stablehlo.reduce(%112 init: %cst_30) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %116 = stablehlo.broadcast_in_dim %115, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_31 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %117 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %118 = stablehlo.divide %116, %117 : tensor<4096x256x1xf32>
    %cst_32 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %119 = stablehlo.broadcast_in_dim %cst_32, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %120 = stablehlo.add %118, %119 : tensor<4096x256x1xf32>
    %121 = stablehlo.rsqrt %120 : tensor<4096x256x1xf32>
    %122 = stablehlo.divide %121, %120 : tensor<4096x256x1xf32>
    %cst_33 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %123 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %124 = stablehlo.multiply %123, %122 : tensor<4096x256x1xf32>
    %125 = stablehlo.broadcast_in_dim %121, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %126 = stablehlo.multiply %111, %125 : tensor<4096x256x1024xf32>
    %127 = stablehlo.broadcast_in_dim %arg10, dims = [2] : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %128 = stablehlo.broadcast_in_dim %127, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %129 = stablehlo.multiply %126, %128 : tensor<4096x256x1024xf32>
    %130 = stablehlo.dot_general %129, %arg11, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x16x64xf32>
    %131 = stablehlo.dot_general %129, %arg12, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x16x64xf32>
    %132 = stablehlo.dot_general %129, %arg13, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x16x64xf32>
    %133 = stablehlo.dot_general %130, %131, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x256xf32>
    %cst_34 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %134 = stablehlo.broadcast_in_dim %cst_34, dims = [] : (tensor<f32>) -> tensor<4096x16x256x256xf32>
    %135 = stablehlo.divide %133, %134 : tensor<4096x16x256x256xf32>
    %c_35 = stablehlo.constant dense<true> : tensor<i1>
    %136 = stablehlo.broadcast_in_dim %c_35, dims = [] : (tensor<i1>) -> tensor<256x256xi1>
    %137 = call @tril(%136) : (tensor<256x256xi1>) -> tensor<256x256xi1>
    %cst_36 = stablehlo.constant dense<-1.000000e+09> : tensor<f32>
    %138:2 = call @_where(%137, %135, %cst_36) : (tensor<256x256xi1>, tensor<4096x16x256x256xf32>, tensor<f32>) -> (tensor<4096x16x256x256xf32>, tensor<4096x16x256x256xi1>)
    %cst_37 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %139 = stablehlo.reduce(%138#0 init: %cst_37) applies stablehlo.maximum across dimensions = [3] : (tensor<4096x16x256x256xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %cst_38 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %140 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<4096x16x256xf32>
    %141 = stablehlo.maximum %140, %139 : tensor<4096x16x256xf32>
    %142 = stablehlo.broadcast_in_dim %141, dims = [0, 1, 2] : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x1xf32>
    %143 = stablehlo.broadcast_in_dim %142, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %144 = stablehlo.subtract %138#0, %143 : tensor<4096x16x256x256xf32>
    %145 = stablehlo.exponential %144 : tensor<4096x16x256x256xf32>
    %cst_39 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %146 = stablehlo.reduce(%145 init: %cst_39) applies stablehlo.add across dimensions = [3] : (tensor<4096x16x256x256xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %147 = stablehlo.broadcast_in_dim %146, dims = [0, 1, 2] : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x1xf32>
    %148 = stablehlo.broadcast_in_dim %147, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %149 = stablehlo.divide %145, %148 : tensor<4096x16x256x256xf32>
    %150 = stablehlo.multiply %147, %147 : tensor<4096x16x256x1xf32>
    %cst_40 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %151 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<4096x16x256x1xf32>
    %152 = stablehlo.divide %151, %150 : tensor<4096x16x256x1xf32>
    %153 = stablehlo.dot_general %132, %149, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x16x256x256xf32>) -> tensor<4096x16x64x256xf32>
    %154 = stablehlo.transpose %153, dims = [0, 3, 1, 2] : (tensor<4096x16x64x256xf32>) -> tensor<4096x256x16x64xf32>
    %155 = stablehlo.dot_general %154, %arg14, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<16x64x1024xf32>) -> tensor<4096x256x1024xf32>
    %156 = stablehlo.add %105, %155 : tensor<4096x256x1024xf32>
    %cst_41 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %157 = stablehlo.reduce(%156 init: %cst_41) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %158 = stablehlo.broadcast_in_dim %157, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_42 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %159 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %160 = stablehlo.divide %158, %159 : tensor<4096x256x1xf32>
    %161 = stablehlo.broadcast_in_dim %160, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %162 = stablehlo.subtract %156, %161 : tensor<4096x256x1024xf32>
    %163 = stablehlo.multiply %162, %162 : tensor<4096x256x1024xf32>
    %cst_43 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %164 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<4096x256x1024xf32>
    %165 = stablehlo.multiply %164, %162 : tensor<4096x256x1024xf32>
    %cst_44 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %166 = stablehlo.reduce(%163 init: %cst_44) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %167 = stablehlo.broadcast_in_dim %166, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_45 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %168 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %169 = stablehlo.divide %167, %168 : tensor<4096x256x1xf32>
    %cst_46 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %170 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %171 = stablehlo.add %169, %170 : tensor<4096x256x1xf32>
    %172 = stablehlo.rsqrt %171 : tensor<4096x256x1xf32>
    %173 = stablehlo.divide %172, %171 : tensor<4096x256x1xf32>
    %cst_47 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %174 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %175 = stablehlo.multiply %174, %173 : tensor<4096x256x1xf32>
    %176 = stablehlo.broadcast_in_dim %172, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %177 = stablehlo.multiply %162, %176 : tensor<4096x256x1024xf32>
    %178 = stablehlo.broadcast_in_dim %arg15, dims = [2] : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %179 = stablehlo.broadcast_in_dim %178, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %180 = stablehlo.multiply %177, %179 : tensor<4096x256x1024xf32>
    %181 = stablehlo.dot_general %180, %arg16, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x4096xf32>) -> tensor<4096x256x4096xf32>
    %182 = stablehlo.multiply %181, %181 : tensor<4096x256x4096xf32>
    %183 = stablehlo.multiply %182, %181 : tensor<4096x256x4096xf32>
    %184 = stablehlo.multiply %181, %181 : tensor<4096x256x4096xf32>
    %cst_48 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %185 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %186 = stablehlo.multiply %185, %184 : tensor<4096x256x4096xf32>
    %cst_49 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %187 = stablehlo.broadcast_in_dim %cst_49, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %188 = stablehlo.multiply %187, %183 : tensor<4096x256x4096xf32>
    %189 = stablehlo.add %181, %188 : tensor<4096x256x4096xf32>
    %cst_50 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %190 = stablehlo.broadcast_in_dim %cst_50, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %191 = stablehlo.multiply %190, %189 : tensor<4096x256x4096xf32>
    %192 = stablehlo.tanh %191 : tensor<4096x256x4096xf32>
    %cst_51 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %193 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %194 = stablehlo.subtract %193, %192 : tensor<4096x256x4096xf32>
    %cst_52 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %195 = stablehlo.broadcast_in_dim %cst_52, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %196 = stablehlo.add %195, %192 : tensor<4096x256x4096xf32>
    %cst_53 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %197 = stablehlo.broadcast_in_dim %cst_53, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %198 = stablehlo.multiply %197, %196 : tensor<4096x256x4096xf32>
    %199 = stablehlo.multiply %181, %198 : tensor<4096x256x4096xf32>
    %200 = stablehlo.dot_general %199, %arg17, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x4096xf32>, tensor<4096x1024xf32>) -> tensor<4096x256x1024xf32>
    %201 = stablehlo.add %156, %200 : tensor<4096x256x1024xf32>
    %cst_54 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %202 = stablehlo.reduce(%201 init: %cst_54) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %203 = stablehlo.broadcast_in_dim %202, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_55 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %204 = stablehlo.broadcast_in_dim %cst_55, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %205 = stablehlo.divide %203, %204 : tensor<4096x256x1xf32>
    %206 = stablehlo.broadcast_in_dim %205, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %207 = stablehlo.subtract %201, %206 : tensor<4096x256x1024xf32>
    %208 = stablehlo.multiply %207, %207 : tensor<4096x256x1024xf32>
    %cst_56 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %209 = stablehlo.broadcast_in_dim %cst_56, dims = [] : (tensor<f32>) -> tensor<4096x256x1024xf32>
    %210 = stablehlo.multiply %209, %207 : tensor<4096x256x1024xf32>
    %cst_57 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %211 = stablehlo.reduce(%208 init: %cst_57) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %212 = stablehlo.broadcast_in_dim %211, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_58 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %213 = stablehlo.broadcast_in_dim %cst_58, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %214 = stablehlo.divide %212, %213 : tensor<4096x256x1xf32>
    %cst_59 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %215 = stablehlo.broadcast_in_dim %cst_59, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %216 = stablehlo.add %214, %215 : tensor<4096x256x1xf32>
    %217 = stablehlo.rsqrt %216 : tensor<4096x256x1xf32>
    %218 = stablehlo.divide %217, %216 : tensor<4096x256x1xf32>
    %cst_60 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %219 = stablehlo.broadcast_in_dim %cst_60, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %220 = stablehlo.multiply %219, %218 : tensor<4096x256x1xf32>
    %221 = stablehlo.broadcast_in_dim %217, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %222 = stablehlo.multiply %207, %221 : tensor<4096x256x1024xf32>
    %223 = stablehlo.broadcast_in_dim %arg18, dims = [2] : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %224 = stablehlo.broadcast_in_dim %223, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %225 = stablehlo.multiply %222, %224 : tensor<4096x256x1024xf32>
    %226 = stablehlo.dot_general %225, %arg19, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<1024x16384xf32>) -> tensor<4096x256x16384xf32>
    %227:3 = call @log_softmax(%226) : (tensor<4096x256x16384xf32>) -> (tensor<4096x256x16384xf32>, tensor<4096x256x16384xf32>, tensor<4096x256x1xf32>)
    %228 = stablehlo.broadcast_in_dim %arg61, dims = [0, 1] : (tensor<4096x256xi32>) -> tensor<4096x256x1xi32>
    %229:2 = call @take_along_axis(%227#0, %228) : (tensor<4096x256x16384xf32>, tensor<4096x256x1xi32>) -> (tensor<4096x256x1xf32>, tensor<4096x256x1x1xi32>)
    %cst_61 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %230 = stablehlo.reduce(%229#0 init: %cst_61) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<f32>
    %cst_62 = stablehlo.constant dense<0x49800000> : tensor<f32>
    %231 = stablehlo.divide %230, %cst_62 : tensor<f32>
    %232 = stablehlo.negate %231 : tensor<f32>
    %cst_63 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %233 = stablehlo.negate %cst_63 : tensor<f32>
    %cst_64 = stablehlo.constant dense<0x49800000> : tensor<f32>
    %234 = stablehlo.divide %233, %cst_64 : tensor<f32>
    %235 = stablehlo.broadcast_in_dim %234, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %236 = call @take_along_axis_0(%229#1, %235) : (tensor<4096x256x1x1xi32>, tensor<4096x256x1xf32>) -> tensor<4096x256x16384xf32>
    %237 = call @log_softmax_1(%227#1, %227#2, %236) : (tensor<4096x256x16384xf32>, tensor<4096x256x1xf32>, tensor<4096x256x16384xf32>) -> tensor<4096x256x16384xf32>
    %238 = stablehlo.dot_general %237, %225, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16384xf32>, tensor<4096x256x1024xf32>) -> tensor<16384x1024xf32>
    %239 = stablehlo.transpose %238, dims = [1, 0] : (tensor<16384x1024xf32>) -> tensor<1024x16384xf32>
    %240 = stablehlo.dot_general %237, %arg19, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16384xf32>, tensor<1024x16384xf32>) -> tensor<4096x256x1024xf32>
    %241 = stablehlo.multiply %222, %240 : tensor<4096x256x1024xf32>
    %cst_65 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %242 = stablehlo.reduce(%241 init: %cst_65) applies stablehlo.add across dimensions = [0, 1] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %243 = stablehlo.reshape %242 : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %244 = stablehlo.broadcast_in_dim %223, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %245 = stablehlo.multiply %240, %244 : tensor<4096x256x1024xf32>
    %cst_66 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %246 = stablehlo.reduce(%243 init: %cst_66) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %247 = stablehlo.multiply %207, %245 : tensor<4096x256x1024xf32>
    %cst_67 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %248 = stablehlo.reduce(%247 init: %cst_67) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %249 = stablehlo.reshape %248 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %250 = stablehlo.broadcast_in_dim %217, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %251 = stablehlo.multiply %245, %250 : tensor<4096x256x1024xf32>
    %252 = stablehlo.multiply %249, %220 : tensor<4096x256x1xf32>
    %cst_68 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %253 = stablehlo.broadcast_in_dim %cst_68, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %254 = stablehlo.divide %252, %253 : tensor<4096x256x1xf32>
    %cst_69 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %255 = stablehlo.reduce(%254 init: %cst_69) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %256 = stablehlo.broadcast_in_dim %255, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %257 = stablehlo.multiply %256, %210 : tensor<4096x256x1024xf32>
    %258 = stablehlo.add %251, %257 : tensor<4096x256x1024xf32>
    %259 = stablehlo.negate %258 : tensor<4096x256x1024xf32>
    %cst_70 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %260 = stablehlo.reduce(%259 init: %cst_70) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %261 = stablehlo.reshape %260 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %cst_71 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %262 = stablehlo.broadcast_in_dim %cst_71, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %263 = stablehlo.divide %261, %262 : tensor<4096x256x1xf32>
    %cst_72 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %264 = stablehlo.reduce(%263 init: %cst_72) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %265 = stablehlo.broadcast_in_dim %264, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %266 = stablehlo.add %258, %265 : tensor<4096x256x1024xf32>
    %267 = stablehlo.dot_general %266, %199, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<4096x256x4096xf32>) -> tensor<1024x4096xf32>
    %268 = stablehlo.transpose %267, dims = [1, 0] : (tensor<1024x4096xf32>) -> tensor<4096x1024xf32>
    %269 = stablehlo.dot_general %266, %arg17, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<4096x1024xf32>) -> tensor<4096x256x4096xf32>
    %270 = stablehlo.multiply %181, %269 : tensor<4096x256x4096xf32>
    %271 = stablehlo.multiply %269, %198 : tensor<4096x256x4096xf32>
    %cst_73 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %272 = stablehlo.broadcast_in_dim %cst_73, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %273 = stablehlo.multiply %272, %270 : tensor<4096x256x4096xf32>
    %274 = stablehlo.multiply %273, %194 : tensor<4096x256x4096xf32>
    %275 = stablehlo.multiply %274, %192 : tensor<4096x256x4096xf32>
    %276 = stablehlo.add %274, %275 : tensor<4096x256x4096xf32>
    %cst_74 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %277 = stablehlo.broadcast_in_dim %cst_74, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %278 = stablehlo.multiply %277, %276 : tensor<4096x256x4096xf32>
    %279 = stablehlo.add %271, %278 : tensor<4096x256x4096xf32>
    %cst_75 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %280 = stablehlo.broadcast_in_dim %cst_75, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %281 = stablehlo.multiply %280, %278 : tensor<4096x256x4096xf32>
    %282 = stablehlo.multiply %281, %186 : tensor<4096x256x4096xf32>
    %283 = stablehlo.add %279, %282 : tensor<4096x256x4096xf32>
    %284 = stablehlo.dot_general %283, %180, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x4096xf32>, tensor<4096x256x1024xf32>) -> tensor<4096x1024xf32>
    %285 = stablehlo.transpose %284, dims = [1, 0] : (tensor<4096x1024xf32>) -> tensor<1024x4096xf32>
    %286 = stablehlo.dot_general %283, %arg16, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x4096xf32>, tensor<1024x4096xf32>) -> tensor<4096x256x1024xf32>
    %287 = stablehlo.multiply %177, %286 : tensor<4096x256x1024xf32>
    %cst_76 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %288 = stablehlo.reduce(%287 init: %cst_76) applies stablehlo.add across dimensions = [0, 1] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %289 = stablehlo.reshape %288 : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %290 = stablehlo.broadcast_in_dim %178, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %291 = stablehlo.multiply %286, %290 : tensor<4096x256x1024xf32>
    %cst_77 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %292 = stablehlo.reduce(%289 init: %cst_77) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %293 = stablehlo.multiply %162, %291 : tensor<4096x256x1024xf32>
    %cst_78 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %294 = stablehlo.reduce(%293 init: %cst_78) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %295 = stablehlo.reshape %294 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %296 = stablehlo.broadcast_in_dim %172, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %297 = stablehlo.multiply %291, %296 : tensor<4096x256x1024xf32>
    %298 = stablehlo.multiply %295, %175 : tensor<4096x256x1xf32>
    %cst_79 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %299 = stablehlo.broadcast_in_dim %cst_79, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %300 = stablehlo.divide %298, %299 : tensor<4096x256x1xf32>
    %cst_80 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %301 = stablehlo.reduce(%300 init: %cst_80) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %302 = stablehlo.broadcast_in_dim %301, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %303 = stablehlo.multiply %302, %165 : tensor<4096x256x1024xf32>
    %304 = stablehlo.add %297, %303 : tensor<4096x256x1024xf32>
    %305 = stablehlo.negate %304 : tensor<4096x256x1024xf32>
    %cst_81 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %306 = stablehlo.reduce(%305 init: %cst_81) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %307 = stablehlo.reshape %306 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %308 = stablehlo.add %266, %304 : tensor<4096x256x1024xf32>
    %cst_82 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %309 = stablehlo.broadcast_in_dim %cst_82, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %310 = stablehlo.divide %307, %309 : tensor<4096x256x1xf32>
    %cst_83 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %311 = stablehlo.reduce(%310 init: %cst_83) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %312 = stablehlo.broadcast_in_dim %311, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %313 = stablehlo.add %308, %312 : tensor<4096x256x1024xf32>
    %314 = stablehlo.dot_general %313, %154, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<4096x256x16x64xf32>) -> tensor<1024x16x64xf32>
    %315 = stablehlo.transpose %314, dims = [1, 2, 0] : (tensor<1024x16x64xf32>) -> tensor<16x64x1024xf32>
    %316 = stablehlo.dot_general %313, %arg14, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<16x64x1024xf32>) -> tensor<4096x256x16x64xf32>
    %317 = stablehlo.transpose %316, dims = [0, 2, 3, 1] : (tensor<4096x256x16x64xf32>) -> tensor<4096x16x64x256xf32>
    %318 = stablehlo.dot_general %317, %132, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x64x256xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x256xf32>
    %319 = stablehlo.dot_general %317, %149, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x64x256xf32>, tensor<4096x16x256x256xf32>) -> tensor<4096x16x64x256xf32>
    %320 = stablehlo.transpose %319, dims = [0, 3, 1, 2] : (tensor<4096x16x64x256xf32>) -> tensor<4096x256x16x64xf32>
    %321 = stablehlo.broadcast_in_dim %152, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %322 = stablehlo.multiply %318, %321 : tensor<4096x16x256x256xf32>
    %323 = stablehlo.multiply %322, %145 : tensor<4096x16x256x256xf32>
    %cst_84 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %324 = stablehlo.reduce(%323 init: %cst_84) applies stablehlo.add across dimensions = [3] : (tensor<4096x16x256x256xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %325 = stablehlo.reshape %324 : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x1xf32>
    %326 = stablehlo.negate %325 : tensor<4096x16x256x1xf32>
    %327 = stablehlo.broadcast_in_dim %147, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %328 = stablehlo.divide %318, %327 : tensor<4096x16x256x256xf32>
    %cst_85 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %329 = stablehlo.reduce(%326 init: %cst_85) applies stablehlo.add across dimensions = [3] : (tensor<4096x16x256x1xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %330 = stablehlo.broadcast_in_dim %329, dims = [0, 1, 2] : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x256xf32>
    %331 = stablehlo.add %328, %330 : tensor<4096x16x256x256xf32>
    %332 = stablehlo.multiply %331, %145 : tensor<4096x16x256x256xf32>
    %333 = call @_where_2(%138#1, %332) : (tensor<4096x16x256x256xi1>, tensor<4096x16x256x256xf32>) -> tensor<4096x16x256x256xf32>
    %cst_86 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %334 = stablehlo.broadcast_in_dim %cst_86, dims = [] : (tensor<f32>) -> tensor<4096x16x256x256xf32>
    %335 = stablehlo.divide %333, %334 : tensor<4096x16x256x256xf32>
    %336 = stablehlo.dot_general %335, %130, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x256x256xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x64xf32>
    %337 = stablehlo.transpose %336, dims = [0, 2, 1, 3] : (tensor<4096x16x256x64xf32>) -> tensor<4096x256x16x64xf32>
    %338 = stablehlo.dot_general %335, %131, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x256x256xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x64xf32>
    %339 = stablehlo.transpose %338, dims = [0, 2, 1, 3] : (tensor<4096x16x256x64xf32>) -> tensor<4096x256x16x64xf32>
    %340 = stablehlo.dot_general %320, %129, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x1024xf32>) -> tensor<16x64x1024xf32>
    %341 = stablehlo.transpose %340, dims = [2, 0, 1] : (tensor<16x64x1024xf32>) -> tensor<1024x16x64xf32>
    %342 = stablehlo.dot_general %320, %arg13, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x1024xf32>
    %343 = stablehlo.dot_general %337, %129, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x1024xf32>) -> tensor<16x64x1024xf32>
    %344 = stablehlo.transpose %343, dims = [2, 0, 1] : (tensor<16x64x1024xf32>) -> tensor<1024x16x64xf32>
    %345 = stablehlo.dot_general %337, %arg12, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x1024xf32>
    %346 = stablehlo.add %342, %345 : tensor<4096x256x1024xf32>
    %347 = stablehlo.dot_general %339, %129, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x1024xf32>) -> tensor<16x64x1024xf32>
    %348 = stablehlo.transpose %347, dims = [2, 0, 1] : (tensor<16x64x1024xf32>) -> tensor<1024x16x64xf32>
    %349 = stablehlo.dot_general %339, %arg11, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x1024xf32>
    %350 = stablehlo.add %346, %349 : tensor<4096x256x1024xf32>
    %351 = stablehlo.multiply %126, %350 : tensor<4096x256x1024xf32>
    %cst_87 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %352 = stablehlo.reduce(%351 init: %cst_87) applies stablehlo.add across dimensions = [0, 1] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %353 = stablehlo.reshape %352 : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %354 = stablehlo.broadcast_in_dim %127, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %355 = stablehlo.multiply %350, %354 : tensor<4096x256x1024xf32>
    %cst_88 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %356 = stablehlo.reduce(%353 init: %cst_88) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %357 = stablehlo.multiply %111, %355 : tensor<4096x256x1024xf32>
    %cst_89 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %358 = stablehlo.reduce(%357 init: %cst_89) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %359 = stablehlo.reshape %358 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %360 = stablehlo.broadcast_in_dim %121, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %361 = stablehlo.multiply %355, %360 : tensor<4096x256x1024xf32>
    %362 = stablehlo.multiply %359, %124 : tensor<4096x256x1xf32>
    %cst_90 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %363 = stablehlo.broadcast_in_dim %cst_90, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %364 = stablehlo.divide %362, %363 : tensor<4096x256x1xf32>
    %cst_91 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %365 = stablehlo.reduce(%364 init: %cst_91) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %366 = stablehlo.broadcast_in_dim %365, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %367 = stablehlo.multiply %366, %114 : tensor<4096x256x1024xf32>
    %368 = stablehlo.add %361, %367 : tensor<4096x256x1024xf32>
    %369 = stablehlo.negate %368 : tensor<4096x256x1024xf32>
    %cst_92 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %370 = stablehlo.reduce(%369 init: %cst_92) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %371 = stablehlo.reshape %370 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %372 = stablehlo.add %313, %368 : tensor<4096x256x1024xf32>
    %cst_93 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %373 = stablehlo.broadcast_in_dim %cst_93, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %374 = stablehlo.divide %371, %373 : tensor<4096x256x1xf32>
    %cst_94 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %375 = stablehlo.reduce(%374 init: %cst_94) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %376 = stablehlo.broadcast_in_dim %375, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %377 = stablehlo.add %372, %376 : tensor<4096x256x1024xf32>
    %378 = stablehlo.dot_general %377, %103, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<4096x256x4096xf32>) -> tensor<1024x4096xf32>
    %379 = stablehlo.transpose %378, dims = [1, 0] : (tensor<1024x4096xf32>) -> tensor<4096x1024xf32>
    %380 = stablehlo.dot_general %377, %arg9, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<4096x1024xf32>) -> tensor<4096x256x4096xf32>
    %381 = stablehlo.multiply %85, %380 : tensor<4096x256x4096xf32>
    %382 = stablehlo.multiply %380, %102 : tensor<4096x256x4096xf32>
    %cst_95 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %383 = stablehlo.broadcast_in_dim %cst_95, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %384 = stablehlo.multiply %383, %381 : tensor<4096x256x4096xf32>
    %385 = stablehlo.multiply %384, %98 : tensor<4096x256x4096xf32>
    %386 = stablehlo.multiply %385, %96 : tensor<4096x256x4096xf32>
    %387 = stablehlo.add %385, %386 : tensor<4096x256x4096xf32>
    %cst_96 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %388 = stablehlo.broadcast_in_dim %cst_96, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %389 = stablehlo.multiply %388, %387 : tensor<4096x256x4096xf32>
    %390 = stablehlo.add %382, %389 : tensor<4096x256x4096xf32>
    %cst_97 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %391 = stablehlo.broadcast_in_dim %cst_97, dims = [] : (tensor<f32>) -> tensor<4096x256x4096xf32>
    %392 = stablehlo.multiply %391, %389 : tensor<4096x256x4096xf32>
    %393 = stablehlo.multiply %392, %90 : tensor<4096x256x4096xf32>
    %394 = stablehlo.add %390, %393 : tensor<4096x256x4096xf32>
    %395 = stablehlo.dot_general %394, %84, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x4096xf32>, tensor<4096x256x1024xf32>) -> tensor<4096x1024xf32>
    %396 = stablehlo.transpose %395, dims = [1, 0] : (tensor<4096x1024xf32>) -> tensor<1024x4096xf32>
    %397 = stablehlo.dot_general %394, %arg8, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x4096xf32>, tensor<1024x4096xf32>) -> tensor<4096x256x1024xf32>
    %398 = stablehlo.multiply %81, %397 : tensor<4096x256x1024xf32>
    %cst_98 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %399 = stablehlo.reduce(%398 init: %cst_98) applies stablehlo.add across dimensions = [0, 1] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %400 = stablehlo.reshape %399 : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %401 = stablehlo.broadcast_in_dim %82, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %402 = stablehlo.multiply %397, %401 : tensor<4096x256x1024xf32>
    %cst_99 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %403 = stablehlo.reduce(%400 init: %cst_99) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %404 = stablehlo.multiply %66, %402 : tensor<4096x256x1024xf32>
    %cst_100 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %405 = stablehlo.reduce(%404 init: %cst_100) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %406 = stablehlo.reshape %405 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %407 = stablehlo.broadcast_in_dim %76, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %408 = stablehlo.multiply %402, %407 : tensor<4096x256x1024xf32>
    %409 = stablehlo.multiply %406, %79 : tensor<4096x256x1xf32>
    %cst_101 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %410 = stablehlo.broadcast_in_dim %cst_101, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %411 = stablehlo.divide %409, %410 : tensor<4096x256x1xf32>
    %cst_102 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %412 = stablehlo.reduce(%411 init: %cst_102) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %413 = stablehlo.broadcast_in_dim %412, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %414 = stablehlo.multiply %413, %69 : tensor<4096x256x1024xf32>
    %415 = stablehlo.add %408, %414 : tensor<4096x256x1024xf32>
    %416 = stablehlo.negate %415 : tensor<4096x256x1024xf32>
    %cst_103 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %417 = stablehlo.reduce(%416 init: %cst_103) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %418 = stablehlo.reshape %417 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %419 = stablehlo.add %377, %415 : tensor<4096x256x1024xf32>
    %cst_104 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %420 = stablehlo.broadcast_in_dim %cst_104, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %421 = stablehlo.divide %418, %420 : tensor<4096x256x1xf32>
    %cst_105 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %422 = stablehlo.reduce(%421 init: %cst_105) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %423 = stablehlo.broadcast_in_dim %422, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %424 = stablehlo.add %419, %423 : tensor<4096x256x1024xf32>
    %425 = stablehlo.dot_general %424, %58, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<4096x256x16x64xf32>) -> tensor<1024x16x64xf32>
    %426 = stablehlo.transpose %425, dims = [1, 2, 0] : (tensor<1024x16x64xf32>) -> tensor<16x64x1024xf32>
    %427 = stablehlo.dot_general %424, %arg6, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x1024xf32>, tensor<16x64x1024xf32>) -> tensor<4096x256x16x64xf32>
    %428 = stablehlo.transpose %427, dims = [0, 2, 3, 1] : (tensor<4096x256x16x64xf32>) -> tensor<4096x16x64x256xf32>
    %429 = stablehlo.dot_general %428, %36, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x64x256xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x256xf32>
    %430 = stablehlo.dot_general %428, %53, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x64x256xf32>, tensor<4096x16x256x256xf32>) -> tensor<4096x16x64x256xf32>
    %431 = stablehlo.transpose %430, dims = [0, 3, 1, 2] : (tensor<4096x16x64x256xf32>) -> tensor<4096x256x16x64xf32>
    %432 = stablehlo.broadcast_in_dim %56, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %433 = stablehlo.multiply %429, %432 : tensor<4096x16x256x256xf32>
    %434 = stablehlo.multiply %433, %49 : tensor<4096x16x256x256xf32>
    %cst_106 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %435 = stablehlo.reduce(%434 init: %cst_106) applies stablehlo.add across dimensions = [3] : (tensor<4096x16x256x256xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %436 = stablehlo.reshape %435 : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x1xf32>
    %437 = stablehlo.negate %436 : tensor<4096x16x256x1xf32>
    %438 = stablehlo.broadcast_in_dim %51, dims = [0, 1, 2, 3] : (tensor<4096x16x256x1xf32>) -> tensor<4096x16x256x256xf32>
    %439 = stablehlo.divide %429, %438 : tensor<4096x16x256x256xf32>
    %cst_107 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %440 = stablehlo.reduce(%437 init: %cst_107) applies stablehlo.add across dimensions = [3] : (tensor<4096x16x256x1xf32>, tensor<f32>) -> tensor<4096x16x256xf32>
    %441 = stablehlo.broadcast_in_dim %440, dims = [0, 1, 2] : (tensor<4096x16x256xf32>) -> tensor<4096x16x256x256xf32>
    %442 = stablehlo.add %439, %441 : tensor<4096x16x256x256xf32>
    %443 = stablehlo.multiply %442, %49 : tensor<4096x16x256x256xf32>
    %444 = call @_where_2(%42#1, %443) : (tensor<4096x16x256x256xi1>, tensor<4096x16x256x256xf32>) -> tensor<4096x16x256x256xf32>
    %cst_108 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %445 = stablehlo.broadcast_in_dim %cst_108, dims = [] : (tensor<f32>) -> tensor<4096x16x256x256xf32>
    %446 = stablehlo.divide %444, %445 : tensor<4096x16x256x256xf32>
    %447 = stablehlo.dot_general %446, %34, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x256x256xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x64xf32>
    %448 = stablehlo.transpose %447, dims = [0, 2, 1, 3] : (tensor<4096x16x256x64xf32>) -> tensor<4096x256x16x64xf32>
    %449 = stablehlo.dot_general %446, %35, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4096x16x256x256xf32>, tensor<4096x256x16x64xf32>) -> tensor<4096x16x256x64xf32>
    %450 = stablehlo.transpose %449, dims = [0, 2, 1, 3] : (tensor<4096x16x256x64xf32>) -> tensor<4096x256x16x64xf32>
    %451 = stablehlo.dot_general %431, %33, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x1024xf32>) -> tensor<16x64x1024xf32>
    %452 = stablehlo.transpose %451, dims = [2, 0, 1] : (tensor<16x64x1024xf32>) -> tensor<1024x16x64xf32>
    %453 = stablehlo.dot_general %431, %arg5, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x1024xf32>
    %454 = stablehlo.dot_general %448, %33, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x1024xf32>) -> tensor<16x64x1024xf32>
    %455 = stablehlo.transpose %454, dims = [2, 0, 1] : (tensor<16x64x1024xf32>) -> tensor<1024x16x64xf32>
    %456 = stablehlo.dot_general %448, %arg4, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x1024xf32>
    %457 = stablehlo.add %453, %456 : tensor<4096x256x1024xf32>
    %458 = stablehlo.dot_general %450, %33, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<4096x256x1024xf32>) -> tensor<16x64x1024xf32>
    %459 = stablehlo.transpose %458, dims = [2, 0, 1] : (tensor<16x64x1024xf32>) -> tensor<1024x16x64xf32>
    %460 = stablehlo.dot_general %450, %arg3, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4096x256x16x64xf32>, tensor<1024x16x64xf32>) -> tensor<4096x256x1024xf32>
    %461 = stablehlo.add %457, %460 : tensor<4096x256x1024xf32>
    %462 = stablehlo.multiply %30, %461 : tensor<4096x256x1024xf32>
    %cst_109 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %463 = stablehlo.reduce(%462 init: %cst_109) applies stablehlo.add across dimensions = [0, 1] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %464 = stablehlo.reshape %463 : (tensor<1024xf32>) -> tensor<1x1x1024xf32>
    %465 = stablehlo.broadcast_in_dim %31, dims = [0, 1, 2] : (tensor<1x1x1024xf32>) -> tensor<4096x256x1024xf32>
    %466 = stablehlo.multiply %461, %465 : tensor<4096x256x1024xf32>
    %cst_110 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %467 = stablehlo.reduce(%464 init: %cst_110) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %468 = stablehlo.multiply %15, %466 : tensor<4096x256x1024xf32>
    %cst_111 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %469 = stablehlo.reduce(%468 init: %cst_111) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %470 = stablehlo.reshape %469 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %471 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x1024xf32>
    %472 = stablehlo.multiply %466, %471 : tensor<4096x256x1024xf32>
    %473 = stablehlo.multiply %470, %28 : tensor<4096x256x1xf32>
    %cst_112 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %474 = stablehlo.broadcast_in_dim %cst_112, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %475 = stablehlo.divide %473, %474 : tensor<4096x256x1xf32>
    %cst_113 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %476 = stablehlo.reduce(%475 init: %cst_113) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %477 = stablehlo.broadcast_in_dim %476, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %478 = stablehlo.multiply %477, %18 : tensor<4096x256x1024xf32>
    %479 = stablehlo.add %472, %478 : tensor<4096x256x1024xf32>
    %480 = stablehlo.negate %479 : tensor<4096x256x1024xf32>
    %cst_114 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %481 = stablehlo.reduce(%480 init: %cst_114) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %482 = stablehlo.reshape %481 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %483 = stablehlo.add %424, %479 : tensor<4096x256x1024xf32>
    %cst_115 = stablehlo.constant dense<1.024000e+03> : tensor<f32>
    %484 = stablehlo.broadcast_in_dim %cst_115, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %485 = stablehlo.divide %482, %484 : tensor<4096x256x1xf32>
    %cst_116 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %486 = stablehlo.reduce(%485 init: %cst_116) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %487 = stablehlo.broadcast_in_dim %486, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1024xf32>
    %488 = stablehlo.add %483, %487 : tensor<4096x256x1024xf32>
    %cst_117 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %489 = stablehlo.reduce(%488 init: %cst_117) applies stablehlo.add across dimensions = [0] : (tensor<4096x256x1024xf32>, tensor<f32>) -> tensor<256x1024xf32>
    %490 = stablehlo.reshape %489 : (tensor<256x1024xf32>) -> tensor<1x256x1024xf32>
    %cst_118 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %491 = stablehlo.reduce(%490 init: %cst_118) applies stablehlo.add across dimensions = [0] : (tensor<1x256x1024xf32>, tensor<f32>) -> tensor<256x1024xf32>
    %cst_119 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %492 = stablehlo.broadcast_in_dim %cst_119, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %493 = "stablehlo.scatter"(%492, %5, %488) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg62: tensor<f32>, %arg63: tensor<f32>):
      %854 = stablehlo.add %arg62, %arg63 : tensor<f32>
      stablehlo.return %854 : tensor<f32>
    }) : (tensor<16384x1024xf32>, tensor<4096x256x1xi32>, tensor<4096x256x1024xf32>) -> tensor<16384x1024xf32>
    %cst_120 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %494 = stablehlo.broadcast_in_dim %cst_120, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %495 = stablehlo.multiply %494, %arg29 : tensor<4096x1024xf32>
    %cst_121 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %496 = stablehlo.broadcast_in_dim %cst_121, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %497 = stablehlo.multiply %496, %379 : tensor<4096x1024xf32>
    %498 = stablehlo.add %495, %497 : tensor<4096x1024xf32>
    %cst_122 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %499 = stablehlo.broadcast_in_dim %cst_122, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %500 = stablehlo.multiply %499, %arg49 : tensor<4096x1024xf32>
    %501 = stablehlo.multiply %379, %379 : tensor<4096x1024xf32>
    %cst_123 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %502 = stablehlo.broadcast_in_dim %cst_123, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %503 = stablehlo.multiply %502, %501 : tensor<4096x1024xf32>
    %504 = stablehlo.add %500, %503 : tensor<4096x1024xf32>
    %cst_124 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %505 = stablehlo.broadcast_in_dim %cst_124, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %506 = stablehlo.multiply %505, %498 : tensor<4096x1024xf32>
    %507 = stablehlo.sqrt %504 : tensor<4096x1024xf32>
    %cst_125 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %508 = stablehlo.broadcast_in_dim %cst_125, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %509 = stablehlo.add %507, %508 : tensor<4096x1024xf32>
    %510 = stablehlo.divide %506, %509 : tensor<4096x1024xf32>
    %511 = stablehlo.subtract %arg9, %510 : tensor<4096x1024xf32>
    %cst_126 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %512 = stablehlo.broadcast_in_dim %cst_126, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %513 = stablehlo.multiply %512, %arg24 : tensor<1024x16x64xf32>
    %cst_127 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %514 = stablehlo.broadcast_in_dim %cst_127, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %515 = stablehlo.multiply %514, %455 : tensor<1024x16x64xf32>
    %516 = stablehlo.add %513, %515 : tensor<1024x16x64xf32>
    %cst_128 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %517 = stablehlo.broadcast_in_dim %cst_128, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %518 = stablehlo.multiply %517, %arg44 : tensor<1024x16x64xf32>
    %519 = stablehlo.multiply %455, %455 : tensor<1024x16x64xf32>
    %cst_129 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %520 = stablehlo.broadcast_in_dim %cst_129, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %521 = stablehlo.multiply %520, %519 : tensor<1024x16x64xf32>
    %522 = stablehlo.add %518, %521 : tensor<1024x16x64xf32>
    %cst_130 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %523 = stablehlo.broadcast_in_dim %cst_130, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %524 = stablehlo.multiply %523, %516 : tensor<1024x16x64xf32>
    %525 = stablehlo.sqrt %522 : tensor<1024x16x64xf32>
    %cst_131 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %526 = stablehlo.broadcast_in_dim %cst_131, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %527 = stablehlo.add %525, %526 : tensor<1024x16x64xf32>
    %528 = stablehlo.divide %524, %527 : tensor<1024x16x64xf32>
    %529 = stablehlo.subtract %arg4, %528 : tensor<1024x16x64xf32>
    %cst_132 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %530 = stablehlo.broadcast_in_dim %cst_132, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %531 = stablehlo.multiply %530, %arg22 : tensor<1024xf32>
    %cst_133 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %532 = stablehlo.broadcast_in_dim %cst_133, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %533 = stablehlo.multiply %532, %467 : tensor<1024xf32>
    %534 = stablehlo.add %531, %533 : tensor<1024xf32>
    %cst_134 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %535 = stablehlo.broadcast_in_dim %cst_134, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %536 = stablehlo.multiply %535, %arg42 : tensor<1024xf32>
    %537 = stablehlo.multiply %467, %467 : tensor<1024xf32>
    %cst_135 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %538 = stablehlo.broadcast_in_dim %cst_135, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %539 = stablehlo.multiply %538, %537 : tensor<1024xf32>
    %540 = stablehlo.add %536, %539 : tensor<1024xf32>
    %cst_136 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %541 = stablehlo.broadcast_in_dim %cst_136, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %542 = stablehlo.multiply %541, %534 : tensor<1024xf32>
    %543 = stablehlo.sqrt %540 : tensor<1024xf32>
    %cst_137 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %544 = stablehlo.broadcast_in_dim %cst_137, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %545 = stablehlo.add %543, %544 : tensor<1024xf32>
    %546 = stablehlo.divide %542, %545 : tensor<1024xf32>
    %547 = stablehlo.subtract %arg2, %546 : tensor<1024xf32>
    %cst_138 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %548 = stablehlo.broadcast_in_dim %cst_138, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %549 = stablehlo.multiply %548, %arg27 : tensor<1024xf32>
    %cst_139 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %550 = stablehlo.broadcast_in_dim %cst_139, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %551 = stablehlo.multiply %550, %403 : tensor<1024xf32>
    %552 = stablehlo.add %549, %551 : tensor<1024xf32>
    %cst_140 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %553 = stablehlo.broadcast_in_dim %cst_140, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %554 = stablehlo.multiply %553, %arg47 : tensor<1024xf32>
    %555 = stablehlo.multiply %403, %403 : tensor<1024xf32>
    %cst_141 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %556 = stablehlo.broadcast_in_dim %cst_141, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %557 = stablehlo.multiply %556, %555 : tensor<1024xf32>
    %558 = stablehlo.add %554, %557 : tensor<1024xf32>
    %cst_142 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %559 = stablehlo.broadcast_in_dim %cst_142, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %560 = stablehlo.multiply %559, %552 : tensor<1024xf32>
    %561 = stablehlo.sqrt %558 : tensor<1024xf32>
    %cst_143 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %562 = stablehlo.broadcast_in_dim %cst_143, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %563 = stablehlo.add %561, %562 : tensor<1024xf32>
    %564 = stablehlo.divide %560, %563 : tensor<1024xf32>
    %565 = stablehlo.subtract %arg7, %564 : tensor<1024xf32>
    %cst_144 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %566 = stablehlo.broadcast_in_dim %cst_144, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %567 = stablehlo.multiply %566, %arg26 : tensor<16x64x1024xf32>
    %cst_145 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %568 = stablehlo.broadcast_in_dim %cst_145, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %569 = stablehlo.multiply %568, %426 : tensor<16x64x1024xf32>
    %570 = stablehlo.add %567, %569 : tensor<16x64x1024xf32>
    %cst_146 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %571 = stablehlo.broadcast_in_dim %cst_146, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %572 = stablehlo.multiply %571, %arg46 : tensor<16x64x1024xf32>
    %573 = stablehlo.multiply %426, %426 : tensor<16x64x1024xf32>
    %cst_147 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %574 = stablehlo.broadcast_in_dim %cst_147, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %575 = stablehlo.multiply %574, %573 : tensor<16x64x1024xf32>
    %576 = stablehlo.add %572, %575 : tensor<16x64x1024xf32>
    %cst_148 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %577 = stablehlo.broadcast_in_dim %cst_148, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %578 = stablehlo.multiply %577, %570 : tensor<16x64x1024xf32>
    %579 = stablehlo.sqrt %576 : tensor<16x64x1024xf32>
    %cst_149 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %580 = stablehlo.broadcast_in_dim %cst_149, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %581 = stablehlo.add %579, %580 : tensor<16x64x1024xf32>
    %582 = stablehlo.divide %578, %581 : tensor<16x64x1024xf32>
    %583 = stablehlo.subtract %arg6, %582 : tensor<16x64x1024xf32>
    %cst_150 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %584 = stablehlo.broadcast_in_dim %cst_150, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %585 = stablehlo.multiply %584, %arg23 : tensor<1024x16x64xf32>
    %cst_151 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %586 = stablehlo.broadcast_in_dim %cst_151, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %587 = stablehlo.multiply %586, %459 : tensor<1024x16x64xf32>
    %588 = stablehlo.add %585, %587 : tensor<1024x16x64xf32>
    %cst_152 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %589 = stablehlo.broadcast_in_dim %cst_152, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %590 = stablehlo.multiply %589, %arg43 : tensor<1024x16x64xf32>
    %591 = stablehlo.multiply %459, %459 : tensor<1024x16x64xf32>
    %cst_153 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %592 = stablehlo.broadcast_in_dim %cst_153, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %593 = stablehlo.multiply %592, %591 : tensor<1024x16x64xf32>
    %594 = stablehlo.add %590, %593 : tensor<1024x16x64xf32>
    %cst_154 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %595 = stablehlo.broadcast_in_dim %cst_154, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %596 = stablehlo.multiply %595, %588 : tensor<1024x16x64xf32>
    %597 = stablehlo.sqrt %594 : tensor<1024x16x64xf32>
    %cst_155 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %598 = stablehlo.broadcast_in_dim %cst_155, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %599 = stablehlo.add %597, %598 : tensor<1024x16x64xf32>
    %600 = stablehlo.divide %596, %599 : tensor<1024x16x64xf32>
    %601 = stablehlo.subtract %arg3, %600 : tensor<1024x16x64xf32>
    %cst_156 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %602 = stablehlo.broadcast_in_dim %cst_156, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %603 = stablehlo.multiply %602, %arg28 : tensor<1024x4096xf32>
    %cst_157 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %604 = stablehlo.broadcast_in_dim %cst_157, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %605 = stablehlo.multiply %604, %396 : tensor<1024x4096xf32>
    %606 = stablehlo.add %603, %605 : tensor<1024x4096xf32>
    %cst_158 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %607 = stablehlo.broadcast_in_dim %cst_158, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %608 = stablehlo.multiply %607, %arg48 : tensor<1024x4096xf32>
    %609 = stablehlo.multiply %396, %396 : tensor<1024x4096xf32>
    %cst_159 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %610 = stablehlo.broadcast_in_dim %cst_159, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %611 = stablehlo.multiply %610, %609 : tensor<1024x4096xf32>
    %612 = stablehlo.add %608, %611 : tensor<1024x4096xf32>
    %cst_160 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %613 = stablehlo.broadcast_in_dim %cst_160, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %614 = stablehlo.multiply %613, %606 : tensor<1024x4096xf32>
    %615 = stablehlo.sqrt %612 : tensor<1024x4096xf32>
    %cst_161 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %616 = stablehlo.broadcast_in_dim %cst_161, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %617 = stablehlo.add %615, %616 : tensor<1024x4096xf32>
    %618 = stablehlo.divide %614, %617 : tensor<1024x4096xf32>
    %619 = stablehlo.subtract %arg8, %618 : tensor<1024x4096xf32>
    %cst_162 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %620 = stablehlo.broadcast_in_dim %cst_162, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %621 = stablehlo.multiply %620, %arg25 : tensor<1024x16x64xf32>
    %cst_163 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %622 = stablehlo.broadcast_in_dim %cst_163, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %623 = stablehlo.multiply %622, %452 : tensor<1024x16x64xf32>
    %624 = stablehlo.add %621, %623 : tensor<1024x16x64xf32>
    %cst_164 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %625 = stablehlo.broadcast_in_dim %cst_164, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %626 = stablehlo.multiply %625, %arg45 : tensor<1024x16x64xf32>
    %627 = stablehlo.multiply %452, %452 : tensor<1024x16x64xf32>
    %cst_165 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %628 = stablehlo.broadcast_in_dim %cst_165, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %629 = stablehlo.multiply %628, %627 : tensor<1024x16x64xf32>
    %630 = stablehlo.add %626, %629 : tensor<1024x16x64xf32>
    %cst_166 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %631 = stablehlo.broadcast_in_dim %cst_166, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %632 = stablehlo.multiply %631, %624 : tensor<1024x16x64xf32>
    %633 = stablehlo.sqrt %630 : tensor<1024x16x64xf32>
    %cst_167 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %634 = stablehlo.broadcast_in_dim %cst_167, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %635 = stablehlo.add %633, %634 : tensor<1024x16x64xf32>
    %636 = stablehlo.divide %632, %635 : tensor<1024x16x64xf32>
    %637 = stablehlo.subtract %arg5, %636 : tensor<1024x16x64xf32>
    %cst_168 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %638 = stablehlo.broadcast_in_dim %cst_168, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %639 = stablehlo.multiply %638, %arg37 : tensor<4096x1024xf32>
    %cst_169 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %640 = stablehlo.broadcast_in_dim %cst_169, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %641 = stablehlo.multiply %640, %268 : tensor<4096x1024xf32>
    %642 = stablehlo.add %639, %641 : tensor<4096x1024xf32>
    %cst_170 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %643 = stablehlo.broadcast_in_dim %cst_170, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %644 = stablehlo.multiply %643, %arg57 : tensor<4096x1024xf32>
    %645 = stablehlo.multiply %268, %268 : tensor<4096x1024xf32>
    %cst_171 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %646 = stablehlo.broadcast_in_dim %cst_171, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %647 = stablehlo.multiply %646, %645 : tensor<4096x1024xf32>
    %648 = stablehlo.add %644, %647 : tensor<4096x1024xf32>
    %cst_172 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %649 = stablehlo.broadcast_in_dim %cst_172, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %650 = stablehlo.multiply %649, %642 : tensor<4096x1024xf32>
    %651 = stablehlo.sqrt %648 : tensor<4096x1024xf32>
    %cst_173 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %652 = stablehlo.broadcast_in_dim %cst_173, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
    %653 = stablehlo.add %651, %652 : tensor<4096x1024xf32>
    %654 = stablehlo.divide %650, %653 : tensor<4096x1024xf32>
    %655 = stablehlo.subtract %arg17, %654 : tensor<4096x1024xf32>
    %cst_174 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %656 = stablehlo.broadcast_in_dim %cst_174, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %657 = stablehlo.multiply %656, %arg32 : tensor<1024x16x64xf32>
    %cst_175 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %658 = stablehlo.broadcast_in_dim %cst_175, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %659 = stablehlo.multiply %658, %344 : tensor<1024x16x64xf32>
    %660 = stablehlo.add %657, %659 : tensor<1024x16x64xf32>
    %cst_176 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %661 = stablehlo.broadcast_in_dim %cst_176, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %662 = stablehlo.multiply %661, %arg52 : tensor<1024x16x64xf32>
    %663 = stablehlo.multiply %344, %344 : tensor<1024x16x64xf32>
    %cst_177 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %664 = stablehlo.broadcast_in_dim %cst_177, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %665 = stablehlo.multiply %664, %663 : tensor<1024x16x64xf32>
    %666 = stablehlo.add %662, %665 : tensor<1024x16x64xf32>
    %cst_178 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %667 = stablehlo.broadcast_in_dim %cst_178, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %668 = stablehlo.multiply %667, %660 : tensor<1024x16x64xf32>
    %669 = stablehlo.sqrt %666 : tensor<1024x16x64xf32>
    %cst_179 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %670 = stablehlo.broadcast_in_dim %cst_179, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %671 = stablehlo.add %669, %670 : tensor<1024x16x64xf32>
    %672 = stablehlo.divide %668, %671 : tensor<1024x16x64xf32>
    %673 = stablehlo.subtract %arg12, %672 : tensor<1024x16x64xf32>
    %cst_180 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %674 = stablehlo.broadcast_in_dim %cst_180, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %675 = stablehlo.multiply %674, %arg30 : tensor<1024xf32>
    %cst_181 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %676 = stablehlo.broadcast_in_dim %cst_181, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %677 = stablehlo.multiply %676, %356 : tensor<1024xf32>
    %678 = stablehlo.add %675, %677 : tensor<1024xf32>
    %cst_182 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %679 = stablehlo.broadcast_in_dim %cst_182, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %680 = stablehlo.multiply %679, %arg50 : tensor<1024xf32>
    %681 = stablehlo.multiply %356, %356 : tensor<1024xf32>
    %cst_183 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %682 = stablehlo.broadcast_in_dim %cst_183, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %683 = stablehlo.multiply %682, %681 : tensor<1024xf32>
    %684 = stablehlo.add %680, %683 : tensor<1024xf32>
    %cst_184 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %685 = stablehlo.broadcast_in_dim %cst_184, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %686 = stablehlo.multiply %685, %678 : tensor<1024xf32>
    %687 = stablehlo.sqrt %684 : tensor<1024xf32>
    %cst_185 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %688 = stablehlo.broadcast_in_dim %cst_185, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %689 = stablehlo.add %687, %688 : tensor<1024xf32>
    %690 = stablehlo.divide %686, %689 : tensor<1024xf32>
    %691 = stablehlo.subtract %arg10, %690 : tensor<1024xf32>
    %cst_186 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %692 = stablehlo.broadcast_in_dim %cst_186, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %693 = stablehlo.multiply %692, %arg35 : tensor<1024xf32>
    %cst_187 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %694 = stablehlo.broadcast_in_dim %cst_187, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %695 = stablehlo.multiply %694, %292 : tensor<1024xf32>
    %696 = stablehlo.add %693, %695 : tensor<1024xf32>
    %cst_188 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %697 = stablehlo.broadcast_in_dim %cst_188, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %698 = stablehlo.multiply %697, %arg55 : tensor<1024xf32>
    %699 = stablehlo.multiply %292, %292 : tensor<1024xf32>
    %cst_189 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %700 = stablehlo.broadcast_in_dim %cst_189, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %701 = stablehlo.multiply %700, %699 : tensor<1024xf32>
    %702 = stablehlo.add %698, %701 : tensor<1024xf32>
    %cst_190 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %703 = stablehlo.broadcast_in_dim %cst_190, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %704 = stablehlo.multiply %703, %696 : tensor<1024xf32>
    %705 = stablehlo.sqrt %702 : tensor<1024xf32>
    %cst_191 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %706 = stablehlo.broadcast_in_dim %cst_191, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %707 = stablehlo.add %705, %706 : tensor<1024xf32>
    %708 = stablehlo.divide %704, %707 : tensor<1024xf32>
    %709 = stablehlo.subtract %arg15, %708 : tensor<1024xf32>
    %cst_192 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %710 = stablehlo.broadcast_in_dim %cst_192, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %711 = stablehlo.multiply %710, %arg34 : tensor<16x64x1024xf32>
    %cst_193 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %712 = stablehlo.broadcast_in_dim %cst_193, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %713 = stablehlo.multiply %712, %315 : tensor<16x64x1024xf32>
    %714 = stablehlo.add %711, %713 : tensor<16x64x1024xf32>
    %cst_194 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %715 = stablehlo.broadcast_in_dim %cst_194, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %716 = stablehlo.multiply %715, %arg54 : tensor<16x64x1024xf32>
    %717 = stablehlo.multiply %315, %315 : tensor<16x64x1024xf32>
    %cst_195 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %718 = stablehlo.broadcast_in_dim %cst_195, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %719 = stablehlo.multiply %718, %717 : tensor<16x64x1024xf32>
    %720 = stablehlo.add %716, %719 : tensor<16x64x1024xf32>
    %cst_196 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %721 = stablehlo.broadcast_in_dim %cst_196, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %722 = stablehlo.multiply %721, %714 : tensor<16x64x1024xf32>
    %723 = stablehlo.sqrt %720 : tensor<16x64x1024xf32>
    %cst_197 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %724 = stablehlo.broadcast_in_dim %cst_197, dims = [] : (tensor<f32>) -> tensor<16x64x1024xf32>
    %725 = stablehlo.add %723, %724 : tensor<16x64x1024xf32>
    %726 = stablehlo.divide %722, %725 : tensor<16x64x1024xf32>
    %727 = stablehlo.subtract %arg14, %726 : tensor<16x64x1024xf32>
    %cst_198 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %728 = stablehlo.broadcast_in_dim %cst_198, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %729 = stablehlo.multiply %728, %arg31 : tensor<1024x16x64xf32>
    %cst_199 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %730 = stablehlo.broadcast_in_dim %cst_199, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %731 = stablehlo.multiply %730, %348 : tensor<1024x16x64xf32>
    %732 = stablehlo.add %729, %731 : tensor<1024x16x64xf32>
    %cst_200 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %733 = stablehlo.broadcast_in_dim %cst_200, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %734 = stablehlo.multiply %733, %arg51 : tensor<1024x16x64xf32>
    %735 = stablehlo.multiply %348, %348 : tensor<1024x16x64xf32>
    %cst_201 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %736 = stablehlo.broadcast_in_dim %cst_201, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %737 = stablehlo.multiply %736, %735 : tensor<1024x16x64xf32>
    %738 = stablehlo.add %734, %737 : tensor<1024x16x64xf32>
    %cst_202 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %739 = stablehlo.broadcast_in_dim %cst_202, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %740 = stablehlo.multiply %739, %732 : tensor<1024x16x64xf32>
    %741 = stablehlo.sqrt %738 : tensor<1024x16x64xf32>
    %cst_203 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %742 = stablehlo.broadcast_in_dim %cst_203, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %743 = stablehlo.add %741, %742 : tensor<1024x16x64xf32>
    %744 = stablehlo.divide %740, %743 : tensor<1024x16x64xf32>
    %745 = stablehlo.subtract %arg11, %744 : tensor<1024x16x64xf32>
    %cst_204 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %746 = stablehlo.broadcast_in_dim %cst_204, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %747 = stablehlo.multiply %746, %arg36 : tensor<1024x4096xf32>
    %cst_205 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %748 = stablehlo.broadcast_in_dim %cst_205, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %749 = stablehlo.multiply %748, %285 : tensor<1024x4096xf32>
    %750 = stablehlo.add %747, %749 : tensor<1024x4096xf32>
    %cst_206 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %751 = stablehlo.broadcast_in_dim %cst_206, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %752 = stablehlo.multiply %751, %arg56 : tensor<1024x4096xf32>
    %753 = stablehlo.multiply %285, %285 : tensor<1024x4096xf32>
    %cst_207 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %754 = stablehlo.broadcast_in_dim %cst_207, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %755 = stablehlo.multiply %754, %753 : tensor<1024x4096xf32>
    %756 = stablehlo.add %752, %755 : tensor<1024x4096xf32>
    %cst_208 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %757 = stablehlo.broadcast_in_dim %cst_208, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %758 = stablehlo.multiply %757, %750 : tensor<1024x4096xf32>
    %759 = stablehlo.sqrt %756 : tensor<1024x4096xf32>
    %cst_209 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %760 = stablehlo.broadcast_in_dim %cst_209, dims = [] : (tensor<f32>) -> tensor<1024x4096xf32>
    %761 = stablehlo.add %759, %760 : tensor<1024x4096xf32>
    %762 = stablehlo.divide %758, %761 : tensor<1024x4096xf32>
    %763 = stablehlo.subtract %arg16, %762 : tensor<1024x4096xf32>
    %cst_210 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %764 = stablehlo.broadcast_in_dim %cst_210, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %765 = stablehlo.multiply %764, %arg33 : tensor<1024x16x64xf32>
    %cst_211 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %766 = stablehlo.broadcast_in_dim %cst_211, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %767 = stablehlo.multiply %766, %341 : tensor<1024x16x64xf32>
    %768 = stablehlo.add %765, %767 : tensor<1024x16x64xf32>
    %cst_212 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %769 = stablehlo.broadcast_in_dim %cst_212, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %770 = stablehlo.multiply %769, %arg53 : tensor<1024x16x64xf32>
    %771 = stablehlo.multiply %341, %341 : tensor<1024x16x64xf32>
    %cst_213 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %772 = stablehlo.broadcast_in_dim %cst_213, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %773 = stablehlo.multiply %772, %771 : tensor<1024x16x64xf32>
    %774 = stablehlo.add %770, %773 : tensor<1024x16x64xf32>
    %cst_214 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %775 = stablehlo.broadcast_in_dim %cst_214, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %776 = stablehlo.multiply %775, %768 : tensor<1024x16x64xf32>
    %777 = stablehlo.sqrt %774 : tensor<1024x16x64xf32>
    %cst_215 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %778 = stablehlo.broadcast_in_dim %cst_215, dims = [] : (tensor<f32>) -> tensor<1024x16x64xf32>
    %779 = stablehlo.add %777, %778 : tensor<1024x16x64xf32>
    %780 = stablehlo.divide %776, %779 : tensor<1024x16x64xf32>
    %781 = stablehlo.subtract %arg13, %780 : tensor<1024x16x64xf32>
    %cst_216 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %782 = stablehlo.broadcast_in_dim %cst_216, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %783 = stablehlo.multiply %782, %arg20 : tensor<16384x1024xf32>
    %cst_217 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %784 = stablehlo.broadcast_in_dim %cst_217, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %785 = stablehlo.multiply %784, %493 : tensor<16384x1024xf32>
    %786 = stablehlo.add %783, %785 : tensor<16384x1024xf32>
    %cst_218 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %787 = stablehlo.broadcast_in_dim %cst_218, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %788 = stablehlo.multiply %787, %arg40 : tensor<16384x1024xf32>
    %789 = stablehlo.multiply %493, %493 : tensor<16384x1024xf32>
    %cst_219 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %790 = stablehlo.broadcast_in_dim %cst_219, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %791 = stablehlo.multiply %790, %789 : tensor<16384x1024xf32>
    %792 = stablehlo.add %788, %791 : tensor<16384x1024xf32>
    %cst_220 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %793 = stablehlo.broadcast_in_dim %cst_220, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %794 = stablehlo.multiply %793, %786 : tensor<16384x1024xf32>
    %795 = stablehlo.sqrt %792 : tensor<16384x1024xf32>
    %cst_221 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %796 = stablehlo.broadcast_in_dim %cst_221, dims = [] : (tensor<f32>) -> tensor<16384x1024xf32>
    %797 = stablehlo.add %795, %796 : tensor<16384x1024xf32>
    %798 = stablehlo.divide %794, %797 : tensor<16384x1024xf32>
    %799 = stablehlo.subtract %arg0, %798 : tensor<16384x1024xf32>
    %cst_222 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %800 = stablehlo.broadcast_in_dim %cst_222, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %801 = stablehlo.multiply %800, %arg38 : tensor<1024xf32>
    %cst_223 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %802 = stablehlo.broadcast_in_dim %cst_223, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %803 = stablehlo.multiply %802, %246 : tensor<1024xf32>
    %804 = stablehlo.add %801, %803 : tensor<1024xf32>
    %cst_224 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %805 = stablehlo.broadcast_in_dim %cst_224, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %806 = stablehlo.multiply %805, %arg58 : tensor<1024xf32>
    %807 = stablehlo.multiply %246, %246 : tensor<1024xf32>
    %cst_225 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %808 = stablehlo.broadcast_in_dim %cst_225, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %809 = stablehlo.multiply %808, %807 : tensor<1024xf32>
    %810 = stablehlo.add %806, %809 : tensor<1024xf32>
    %cst_226 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %811 = stablehlo.broadcast_in_dim %cst_226, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %812 = stablehlo.multiply %811, %804 : tensor<1024xf32>
    %813 = stablehlo.sqrt %810 : tensor<1024xf32>
    %cst_227 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %814 = stablehlo.broadcast_in_dim %cst_227, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %815 = stablehlo.add %813, %814 : tensor<1024xf32>
    %816 = stablehlo.divide %812, %815 : tensor<1024xf32>
    %817 = stablehlo.subtract %arg18, %816 : tensor<1024xf32>
    %cst_228 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %818 = stablehlo.broadcast_in_dim %cst_228, dims = [] : (tensor<f32>) -> tensor<1024x16384xf32>
    %819 = stablehlo.multiply %818, %arg39 : tensor<1024x16384xf32>
    %cst_229 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %820 = stablehlo.broadcast_in_dim %cst_229, dims = [] : (tensor<f32>) -> tensor<1024x16384xf32>
    %821 = stablehlo.multiply %820, %239 : tensor<1024x16384xf32>
    %822 = stablehlo.add %819, %821 : tensor<1024x16384xf32>
    %cst_230 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %823 = stablehlo.broadcast_in_dim %cst_230, dims = [] : (tensor<f32>) -> tensor<1024x16384xf32>
    %824 = stablehlo.multiply %823, %arg59 : tensor<1024x16384xf32>
    %825 = stablehlo.multiply %239, %239 : tensor<1024x16384xf32>
    %cst_231 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %826 = stablehlo.broadcast_in_dim %cst_231, dims = [] : (tensor<f32>) -> tensor<1024x16384xf32>
    %827 = stablehlo.multiply %826, %825 : tensor<1024x16384xf32>
    %828 = stablehlo.add %824, %827 : tensor<1024x16384xf32>
    %cst_232 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %829 = stablehlo.broadcast_in_dim %cst_232, dims = [] : (tensor<f32>) -> tensor<1024x16384xf32>
    %830 = stablehlo.multiply %829, %822 : tensor<1024x16384xf32>
    %831 = stablehlo.sqrt %828 : tensor<1024x16384xf32>
    %cst_233 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %832 = stablehlo.broadcast_in_dim %cst_233, dims = [] : (tensor<f32>) -> tensor<1024x16384xf32>
    %833 = stablehlo.add %831, %832 : tensor<1024x16384xf32>
    %834 = stablehlo.divide %830, %833 : tensor<1024x16384xf32>
    %835 = stablehlo.subtract %arg19, %834 : tensor<1024x16384xf32>
    %cst_234 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %836 = stablehlo.broadcast_in_dim %cst_234, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %837 = stablehlo.multiply %836, %arg21 : tensor<256x1024xf32>
    %cst_235 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %838 = stablehlo.broadcast_in_dim %cst_235, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %839 = stablehlo.multiply %838, %491 : tensor<256x1024xf32>
    %840 = stablehlo.add %837, %839 : tensor<256x1024xf32>
    %cst_236 = stablehlo.constant dense<9.900000e-01> : tensor<f32>
    %841 = stablehlo.broadcast_in_dim %cst_236, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %842 = stablehlo.multiply %841, %arg41 : tensor<256x1024xf32>
    %843 = stablehlo.multiply %491, %491 : tensor<256x1024xf32>
    %cst_237 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %844 = stablehlo.broadcast_in_dim %cst_237, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %845 = stablehlo.multiply %844, %843 : tensor<256x1024xf32>
    %846 = stablehlo.add %842, %845 : tensor<256x1024xf32>
    %cst_238 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %847 = stablehlo.broadcast_in_dim %cst_238, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %848 = stablehlo.multiply %847, %840 : tensor<256x1024xf32>
    %849 = stablehlo.sqrt %846 : tensor<256x1024xf32>
    %cst_239 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %850 = stablehlo.broadcast_in_dim %cst_239, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %851 = stablehlo.add %849, %850 : tensor<256x1024xf32>
    %852 = stablehlo.divide %848, %851 : tensor<256x1024xf32>
    %853 = stablehlo.subtract %arg1, %852 : tensor<256x1024xf32>
    return %232, %799, %853, %547, %601, %529, %637, %583, %565, %619, %511, %691, %745, %673, %781, %727, %709, %763, %655, %817, %835, %786, %840, %534, %588, %516, %624, %570, %552, %606, %498, %678, %732, %660, %768, %714, %696, %750, %642, %804, %822, %792, %846, %540, %594, %522, %630, %576, %558, %612, %504, %684, %738, %666, %774, %720, %702, %756, %648, %810, %828 : tensor<f32>, tensor<16384x1024xf32>, tensor<256x1024xf32>, tensor<1024xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<16x64x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>, tensor<1024xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<16x64x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>, tensor<1024xf32>, tensor<1024x16384xf32>, tensor<16384x1024xf32>, tensor<256x1024xf32>, tensor<1024xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<16x64x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>, tensor<1024xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<16x64x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>, tensor<1024xf32>, tensor<1024x16384xf32>, tensor<16384x1024xf32>, tensor<256x1024xf32>, tensor<1024xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<16x64x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>, tensor<1024xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<1024x16x64xf32>, tensor<16x64x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>, tensor<1024xf32>, tensor<1024x16384xf32>
  }
  func.func private @tril(%arg0: tensor<256x256xi1>) -> tensor<256x256xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<256x256xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<256x256xi32>
    %2 = stablehlo.add %0, %1 : tensor<256x256xi32>
    %3 = stablehlo.iota dim = 1 : tensor<256x256xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<256x256xi32>, tensor<256x256xi32>) -> tensor<256x256xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<256x256xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<256x256xi1>, tensor<256x256xi1>
    return %6 : tensor<256x256xi1>
  }
  func.func private @_where(%arg0: tensor<256x256xi1>, %arg1: tensor<4096x16x256x256xf32>, %arg2: tensor<f32>) -> (tensor<4096x16x256x256xf32>, tensor<4096x16x256x256xi1>) {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<256x256xi1>) -> tensor<4096x16x256x256xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4096x16x256x256xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<4096x16x256x256xi1>, tensor<4096x16x256x256xf32>
    return %3, %1 : tensor<4096x16x256x256xf32>, tensor<4096x16x256x256xi1>
  }
  func.func private @log_softmax(%arg0: tensor<4096x256x16384xf32>) -> (tensor<4096x256x16384xf32>, tensor<4096x256x16384xf32>, tensor<4096x256x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<4096x256x16384xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4096x256xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<4096x256xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x16384xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<4096x256x16384xf32>
    %6 = stablehlo.exponential %5 : tensor<4096x256x16384xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x16384xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %9 = stablehlo.log %8 : tensor<4096x256x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<4096x256x1xf32>) -> tensor<4096x256x16384xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<4096x256x16384xf32>
    return %11, %6, %8 : tensor<4096x256x16384xf32>, tensor<4096x256x16384xf32>, tensor<4096x256x1xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<4096x256x16384xf32>, %arg1: tensor<4096x256x1xi32>) -> (tensor<4096x256x1xf32>, tensor<4096x256x1x1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4096x256x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<4096x256x1xi32>, tensor<4096x256x1xi32>) -> tensor<4096x256x1xi1>
    %c_0 = stablehlo.constant dense<16384> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4096x256x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<4096x256x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<4096x256x1xi1>, tensor<4096x256x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<4096x256x1xi32>) -> tensor<4096x256x1x1xi32>
    %c_1 = stablehlo.constant dense<16383> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<4096x256x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<4096x256x1x1xi32>, tensor<4096x256x1x1xi32>) -> tensor<4096x256x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<4096x256x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<4096x256x1x1xi32>, tensor<4096x256x1x1xi32>) -> tensor<4096x256x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<4096x256x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [3] : (tensor<4096x256x1x1xi1>, tensor<i1>) -> tensor<4096x256x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<4096x256x16384xf32>, tensor<4096x256x1x1xi32>) -> tensor<4096x256x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4096x256x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<4096x256x1xi1>, tensor<4096x256x1xf32>
    return %15, %5 : tensor<4096x256x1xf32>, tensor<4096x256x1x1xi32>
  }
  func.func private @take_along_axis_0(%arg0: tensor<4096x256x1x1xi32>, %arg1: tensor<4096x256x1xf32>) -> tensor<4096x256x16384xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4096x256x16384xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2], index_vector_dim = 3>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<4096x256x16384xf32>, tensor<4096x256x1x1xi32>, tensor<4096x256x1xf32>) -> tensor<4096x256x16384xf32>
    return %1 : tensor<4096x256x16384xf32>
  }
  func.func private @log_softmax_1(%arg0: tensor<4096x256x16384xf32>, %arg1: tensor<4096x256x1xf32>, %arg2: tensor<4096x256x16384xf32>) -> tensor<4096x256x16384xf32> {
    %0 = stablehlo.negate %arg2 : tensor<4096x256x16384xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x16384xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %2 = stablehlo.reshape %1 : (tensor<4096x256xf32>) -> tensor<4096x256x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<4096x256x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<4096x256x1xf32>, tensor<f32>) -> tensor<4096x256xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<4096x256xf32>) -> tensor<4096x256x16384xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<4096x256x16384xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<4096x256x16384xf32>
    return %7 : tensor<4096x256x16384xf32>
  }
  func.func private @_where_2(%arg0: tensor<4096x16x256x256xi1>, %arg1: tensor<4096x16x256x256xf32>) -> tensor<4096x16x256x256xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4096x16x256x256xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<4096x16x256x256xi1>, tensor<4096x16x256x256xf32>
    return %1 : tensor<4096x16x256x256xf32>
  }
}
