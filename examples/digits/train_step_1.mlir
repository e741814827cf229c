module @jit_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<128x128xf32>, %arg3: tensor<128xf32>, %arg4: tensor<128x10xf32>, %arg5: tensor<10xf32>, %arg6: tensor<64x128xf32>, %arg7: tensor<128xf32>, %arg8: tensor<128x128xf32>, %arg9: tensor<128xf32>, %arg10: tensor<128x10xf32>, %arg11: tensor<10xf32>, %arg12: tensor<f32>, %arg13: tensor<64x64xf32>, %arg14: tensor<64xi32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<64x128xf32> {jax.result_info = "result[1][0][0]"}, tensor<128xf32> {jax.result_info = "result[1][0][1]"}, tensor<128x128xf32> {jax.result_info = "result[1][1][0]"}, tensor<128xf32> {jax.result_info = "result[1][1][1]"}, tensor<128x10xf32> {jax.result_info = "result[1][2][0]"}, tensor<10xf32> {jax.result_info = "result[1][2][1]"}, tensor<64x128xf32> {jax.result_info = "result[2][0][0]"}, tensor<128xf32> {jax.result_info = "result[2][0][1]"}, tensor<128x128xf32> {jax.result_info = "result[2][1][0]"}, tensor<128xf32> {jax.result_info = "result[2][1][1]"}, tensor<128x10xf32> {jax.result_info = "result[2][2][0]"}, tensor<10xf32> {jax.result_info = "result[2][2][1]"}) {
    %0 = stablehlo.dot_general %arg13, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x64xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<128xf32>) -> tensor<1x128xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x128xf32>) -> tensor<64x128xf32>
    %3 = stablehlo.add %0, %2 : tensor<64x128xf32>
    %4 = call @relu(%3) : (tensor<64x128xf32>) -> tensor<64x128xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %6 = stablehlo.compare GT, %3, %5, FLOAT : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xi1>
    %7 = stablehlo.dot_general %4, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
    %8 = stablehlo.broadcast_in_dim %arg3, dims = [1] : (tensor<128xf32>) -> tensor<1x128xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x128xf32>) -> tensor<64x128xf32>
    %10 = stablehlo.add %7, %9 : tensor<64x128xf32>
    %11 = call @relu(%10) : (tensor<64x128xf32>) -> tensor<64x128xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %13 = stablehlo.compare GT, %10, %12, FLOAT : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xi1>
    %14 = stablehlo.dot_general %11, %arg4, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x128xf32>, tensor<128x10xf32>) -> tensor<64x10xf32>
    %15 = stablehlo.broadcast_in_dim %arg5, dims = [1] : (tensor<10xf32>) -> tensor<1x10xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1] : (tensor<1x10xf32>) -> tensor<64x10xf32>
    %17 = stablehlo.add %14, %16 : tensor<64x10xf32>
    %18:3 = call @log_softmax(%17) : (tensor<64x10xf32>) -> (tensor<64x10xf32>, tensor<64x10xf32>, tensor<64x1xf32>)
    %19 = call @_one_hot(%arg14) : (tensor<64xi32>) -> tensor<64x10xf32>
    %20 = stablehlo.multiply %18#0, %19 : tensor<64x10xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %21 = stablehlo.reduce(%20 init: %cst_1) applies stablehlo.add across dimensions = [0, 1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<f32>
    %22 = stablehlo.negate %21 : tensor<f32>
    %cst_2 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %23 = stablehlo.divide %22, %cst_2 : tensor<f32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_4 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %24 = stablehlo.divide %cst_3, %cst_4 : tensor<f32>
    %25 = stablehlo.negate %24 : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %27 = stablehlo.multiply %26, %19 : tensor<64x10xf32>
    %28 = call @log_softmax_0(%18#1, %18#2, %27) : (tensor<64x10xf32>, tensor<64x1xf32>, tensor<64x10xf32>) -> tensor<64x10xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %29 = stablehlo.reduce(%28 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<64x10xf32>, tensor<f32>) -> tensor<10xf32>
    %30 = stablehlo.reshape %29 : (tensor<10xf32>) -> tensor<1x10xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %31 = stablehlo.reduce(%30 init: %cst_6) applies stablehlo.add across dimensions = [0] : (tensor<1x10xf32>, tensor<f32>) -> tensor<10xf32>
    %32 = stablehlo.dot_general %28, %11, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x10xf32>, tensor<64x128xf32>) -> tensor<10x128xf32>
    %33 = stablehlo.transpose %32, dims = [1, 0] : (tensor<10x128xf32>) -> tensor<128x10xf32>
    %34 = stablehlo.dot_general %28, %arg4, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x10xf32>, tensor<128x10xf32>) -> tensor<64x128xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %35 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %36 = stablehlo.select %13, %34, %35 : tensor<64x128xi1>, tensor<64x128xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %37 = stablehlo.reduce(%36 init: %cst_8) applies stablehlo.add across dimensions = [0] : (tensor<64x128xf32>, tensor<f32>) -> tensor<128xf32>
    %38 = stablehlo.reshape %37 : (tensor<128xf32>) -> tensor<1x128xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %39 = stablehlo.reduce(%38 init: %cst_9) applies stablehlo.add across dimensions = [0] : (tensor<1x128xf32>, tensor<f32>) -> tensor<128xf32>
    %40 = stablehlo.dot_general %36, %4, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<128x128xf32>
    %41 = stablehlo.transpose %40, dims = [1, 0] : (tensor<128x128xf32>) -> tensor<128x128xf32>
    %42 = stablehlo.dot_general %36, %arg2, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %43 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %44 = stablehlo.select %6, %42, %43 : tensor<64x128xi1>, tensor<64x128xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %45 = stablehlo.reduce(%44 init: %cst_11) applies stablehlo.add across dimensions = [0] : (tensor<64x128xf32>, tensor<f32>) -> tensor<128xf32>
    %46 = stablehlo.reshape %45 : (tensor<128xf32>) -> tensor<1x128xf32>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %47 = stablehlo.reduce(%46 init: %cst_12) applies stablehlo.add across dimensions = [0] : (tensor<1x128xf32>, tensor<f32>) -> tensor<128xf32>
    %48 = stablehlo.dot_general %44, %arg13, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x128xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %49 = stablehlo.transpose %48, dims = [1, 0] : (tensor<128x64xf32>) -> tensor<64x128xf32>
    %50 = "stablehlo.all_reduce"(%23) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    %51 = "stablehlo.all_reduce"(%49) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<64x128xf32>) -> tensor<64x128xf32>
    %52 = "stablehlo.all_reduce"(%47) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<128xf32>) -> tensor<128xf32>
    %53 = "stablehlo.all_reduce"(%41) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<128x128xf32>) -> tensor<128x128xf32>
    %54 = "stablehlo.all_reduce"(%39) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<128xf32>) -> tensor<128xf32>
    %55 = "stablehlo.all_reduce"(%33) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<128x10xf32>) -> tensor<128x10xf32>
    %56 = "stablehlo.all_reduce"(%31) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %93 = stablehlo.add %arg15, %arg16 : tensor<f32>
      stablehlo.return %93 : tensor<f32>
    }) : (tensor<10xf32>) -> tensor<10xf32>
    %cst_13 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %57 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %58 = stablehlo.multiply %57, %arg6 : tensor<64x128xf32>
    %59 = stablehlo.add %58, %51 : tensor<64x128xf32>
    %cst_14 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %60 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %61 = stablehlo.multiply %60, %arg7 : tensor<128xf32>
    %62 = stablehlo.add %61, %52 : tensor<128xf32>
    %cst_15 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %64 = stablehlo.multiply %63, %arg8 : tensor<128x128xf32>
    %65 = stablehlo.add %64, %53 : tensor<128x128xf32>
    %cst_16 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %67 = stablehlo.multiply %66, %arg9 : tensor<128xf32>
    %68 = stablehlo.add %67, %54 : tensor<128xf32>
    %cst_17 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %70 = stablehlo.multiply %69, %arg10 : tensor<128x10xf32>
    %71 = stablehlo.add %70, %55 : tensor<128x10xf32>
    %cst_18 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %72 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %73 = stablehlo.multiply %72, %arg11 : tensor<10xf32>
    %74 = stablehlo.add %73, %56 : tensor<10xf32>
    %75 = stablehlo.broadcast_in_dim %arg12, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %76 = stablehlo.multiply %75, %59 : tensor<64x128xf32>
    %77 = stablehlo.subtract %arg0, %76 : tensor<64x128xf32>
    %78 = stablehlo.broadcast_in_dim %arg12, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %79 = stablehlo.multiply %78, %62 : tensor<128xf32>
    %80 = stablehlo.subtract %arg1, %79 : tensor<128xf32>
    %81 = stablehlo.broadcast_in_dim %arg12, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %82 = stablehlo.multiply %81, %65 : tensor<128x128xf32>
    %83 = stablehlo.subtract %arg2, %82 : tensor<128x128xf32>
    %84 = stablehlo.broadcast_in_dim %arg12, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %85 = stablehlo.multiply %84, %68 : tensor<128xf32>
    %86 = stablehlo.subtract %arg3, %85 : tensor<128xf32>
    %87 = stablehlo.broadcast_in_dim %arg12, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %88 = stablehlo.multiply %87, %71 : tensor<128x10xf32>
    %89 = stablehlo.subtract %arg4, %88 : tensor<128x10xf32>
    %90 = stablehlo.broadcast_in_dim %arg12, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %91 = stablehlo.multiply %90, %74 : tensor<10xf32>
    %92 = stablehlo.subtract %arg5, %91 : tensor<10xf32>
    return %50, %77, %80, %83, %86, %89, %92, %59, %62, %65, %68, %71, %74 : tensor<f32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>
  }
  func.func private @relu(%arg0: tensor<64x128xf32>) -> tensor<64x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<64x128xf32>
    return %1 : tensor<64x128xf32>
  }
  func.func private @log_softmax(%arg0: tensor<64x10xf32>) -> (tensor<64x10xf32>, tensor<64x10xf32>, tensor<64x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<64xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<64xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<64xf32>) -> tensor<64x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x10xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<64x10xf32>
    %6 = stablehlo.exponential %5 : tensor<64x10xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<64xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<64xf32>) -> tensor<64x1xf32>
    %9 = stablehlo.log %8 : tensor<64x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x10xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<64x10xf32>
    return %11, %6, %8 : tensor<64x10xf32>, tensor<64x10xf32>, tensor<64x1xf32>
  }
  func.func private @_one_hot(%arg0: tensor<64xi32>) -> tensor<64x10xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0] : (tensor<64xi32>) -> tensor<64x1xi32>
    %1 = stablehlo.iota dim = 1 : tensor<1x10xi32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<64x1xi32>) -> tensor<64x10xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x10xi32>) -> tensor<64x10xi32>
    %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<64x10xi32>, tensor<64x10xi32>) -> tensor<64x10xi1>
    %5 = stablehlo.convert %4 : (tensor<64x10xi1>) -> tensor<64x10xf32>
    return %5 : tensor<64x10xf32>
  }
  func.func private @log_softmax_0(%arg0: tensor<64x10xf32>, %arg1: tensor<64x1xf32>, %arg2: tensor<64x10xf32>) -> tensor<64x10xf32> {
    %0 = stablehlo.negate %arg2 : tensor<64x10xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<64xf32>
    %2 = stablehlo.reshape %1 : (tensor<64xf32>) -> tensor<64x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<64x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<64x1xf32>, tensor<f32>) -> tensor<64xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<64xf32>) -> tensor<64x10xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<64x10xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<64x10xf32>
    return %7 : tensor<64x10xf32>
  }
}
