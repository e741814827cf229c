module @jit_train_step attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
  sdy.mesh @mesh = <["data"=4]> {stablehlo.mesh = {axes = [{name = "data", size = 4 : i64}]}}
  func.func public @main(%arg0: tensor<64x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<128x128xf32>, %arg3: tensor<128xf32>, %arg4: tensor<128x10xf32>, %arg5: tensor<10xf32>, %arg6: tensor<64x128xf32>, %arg7: tensor<128xf32>, %arg8: tensor<128x128xf32>, %arg9: tensor<128xf32>, %arg10: tensor<128x10xf32>, %arg11: tensor<10xf32>, %arg12: tensor<f32> {sdy.sharding = #sdy.sharding<@empty_mesh, []>}, %arg13: tensor<64x64xf32>, %arg14: tensor<64xi32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<64x128xf32> {jax.result_info = "result[1][0][0]"}, tensor<128xf32> {jax.result_info = "result[1][0][1]"}, tensor<128x128xf32> {jax.result_info = "result[1][1][0]"}, tensor<128xf32> {jax.result_info = "result[1][1][1]"}, tensor<128x10xf32> {jax.result_info = "result[1][2][0]"}, tensor<10xf32> {jax.result_info = "result[1][2][1]"}, tensor<64x128xf32> {jax.result_info = "result[2][0][0]"}, tensor<128xf32> {jax.result_info = "result[2][0][1]"}, tensor<128x128xf32> {jax.result_info = "result[2][1][0]"}, tensor<128xf32> {jax.result_info = "result[2][1][1]"}, tensor<128x10xf32> {jax.result_info = "result[2][2][0]"}, tensor<10xf32> {jax.result_info = "result[2][2][1]"}) {
    %0:13 = sdy.manual_computation(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, %arg12, %arg13, %arg14) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, []>, <@mesh, [{"data"}, {}]>, <@mesh, [{"data"}]>] out_shardings=[<@mesh, []>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>, <@mesh, [{}, {}]>, <@mesh, [{}]>] manual_axes={"data"} (%arg15: tensor<64x128xf32>, %arg16: tensor<128xf32>, %arg17: tensor<128x128xf32>, %arg18: tensor<128xf32>, %arg19: tensor<128x10xf32>, %arg20: tensor<10xf32>, %arg21: tensor<64x128xf32>, %arg22: tensor<128xf32>, %arg23: tensor<128x128xf32>, %arg24: tensor<128xf32>, %arg25: tensor<128x10xf32>, %arg26: tensor<10xf32>, %arg27: tensor<f32>, %arg28: tensor<16x64xf32>, %arg29: tensor<16xi32>) {
      %1 = stablehlo.dot_general %arg28, %arg15, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x64xf32>, tensor<64x128xf32>) -> tensor<16x128xf32>
      %2 = stablehlo.broadcast_in_dim %arg16, dims = [1] : (tensor<128xf32>) -> tensor<1x128xf32>
      %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<1x128xf32>) -> tensor<16x128xf32>
      %4 = stablehlo.add %1, %3 : tensor<16x128xf32>
      %5 = func.call @relu(%4) : (tensor<16x128xf32>) -> tensor<16x128xf32>
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x128xf32>
      %7 = stablehlo.compare GT, %4, %6, FLOAT : (tensor<16x128xf32>, tensor<16x128xf32>) -> tensor<16x128xi1>
      %8 = stablehlo.dot_general %5, %arg17, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x128xf32>, tensor<128x128xf32>) -> tensor<16x128xf32>
      %9 = stablehlo.broadcast_in_dim %arg18, dims = [1] : (tensor<128xf32>) -> tensor<1x128xf32>
      %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<1x128xf32>) -> tensor<16x128xf32>
      %11 = stablehlo.add %8, %10 : tensor<16x128xf32>
      %12 = func.call @relu(%11) : (tensor<16x128xf32>) -> tensor<16x128xf32>
      %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %13 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<16x128xf32>
      %14 = stablehlo.compare GT, %11, %13, FLOAT : (tensor<16x128xf32>, tensor<16x128xf32>) -> tensor<16x128xi1>
      %15 = stablehlo.dot_general %12, %arg19, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x128xf32>, tensor<128x10xf32>) -> tensor<16x10xf32>
      %16 = stablehlo.broadcast_in_dim %arg20, dims = [1] : (tensor<10xf32>) -> tensor<1x10xf32>
      %17 = stablehlo.broadcast_in_dim %16, dims = [0, 1] : (tensor<1x10xf32>) -> tensor<16x10xf32>
      %18 = stablehlo.add %15, %17 : tensor<16x10xf32>
      %19:3 = func.call @log_softmax(%18) : (tensor<16x10xf32>) -> (tensor<16x10xf32>, tensor<16x10xf32>, tensor<16x1xf32>)
      %20 = func.call @_one_hot(%arg29) : (tensor<16xi32>) -> tensor<16x10xf32>
      %21 = stablehlo.multiply %19#0, %20 : tensor<16x10xf32>
      %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %22 = stablehlo.reduce(%21 init: %cst_1) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x10xf32>, tensor<f32>) -> tensor<f32>
      %23 = stablehlo.negate %22 : tensor<f32>
      %cst_2 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
      %24 = stablehlo.divide %23, %cst_2 : tensor<f32>
      %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %cst_4 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
      %25 = stablehlo.divide %cst_3, %cst_4 : tensor<f32>
      %26 = stablehlo.negate %25 : tensor<f32>
      %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<f32>) -> tensor<16x10xf32>
      %28 = stablehlo.multiply %27, %20 : tensor<16x10xf32>
      %29 = func.call @log_softmax_0(%19#1, %19#2, %28) : (tensor<16x10xf32>, tensor<16x1xf32>, tensor<16x10xf32>) -> tensor<16x10xf32>
      %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %30 = stablehlo.reduce(%29 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<16x10xf32>, tensor<f32>) -> tensor<10xf32>
      %31 = stablehlo.reshape %30 : (tensor<10xf32>) -> tensor<1x10xf32>
      %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %32 = stablehlo.reduce(%31 init: %cst_6) applies stablehlo.add across dimensions = [0] : (tensor<1x10xf32>, tensor<f32>) -> tensor<10xf32>
      %33 = stablehlo.dot_general %29, %12, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x10xf32>, tensor<16x128xf32>) -> tensor<10x128xf32>
      %34 = stablehlo.transpose %33, dims = [1, 0] : (tensor<10x128xf32>) -> tensor<128x10xf32>
      %35 = stablehlo.dot_general %29, %arg19, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x10xf32>, tensor<128x10xf32>) -> tensor<16x128xf32>
      %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %36 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<16x128xf32>
      %37 = stablehlo.select %14, %35, %36 : tensor<16x128xi1>, tensor<16x128xf32>
      %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %38 = stablehlo.reduce(%37 init: %cst_8) applies stablehlo.add across dimensions = [0] : (tensor<16x128xf32>, tensor<f32>) -> tensor<128xf32>
      %39 = stablehlo.reshape %38 : (tensor<128xf32>) -> tensor<1x128xf32>
      %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %40 = stablehlo.reduce(%39 init: %cst_9) applies stablehlo.add across dimensions = [0] : (tensor<1x128xf32>, tensor<f32>) -> tensor<128xf32>
      %41 = stablehlo.dot_general %37, %5, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x128xf32>, tensor<16x128xf32>) -> tensor<128x128xf32>
      %42 = stablehlo.transpose %41, dims = [1, 0] : (tensor<128x128xf32>) -> tensor<128x128xf32>
      %43 = stablehlo.dot_general %37, %arg17, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x128xf32>, tensor<128x128xf32>) -> tensor<16x128xf32>
      %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %44 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<16x128xf32>
      %45 = stablehlo.select %7, %43, %44 : tensor<16x128xi1>, tensor<16x128xf32>
      %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %46 = stablehlo.reduce(%45 init: %cst_11) applies stablehlo.add across dimensions = [0] : (tensor<16x128xf32>, tensor<f32>) -> tensor<128xf32>
      %47 = stablehlo.reshape %46 : (tensor<128xf32>) -> tensor<1x128xf32>
      %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %48 = stablehlo.reduce(%47 init: %cst_12) applies stablehlo.add across dimensions = [0] : (tensor<1x128xf32>, tensor<f32>) -> tensor<128xf32>
      %49 = stablehlo.dot_general %45, %arg28, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x128xf32>, tensor<16x64xf32>) -> tensor<128x64xf32>
      %50 = stablehlo.transpose %49, dims = [1, 0] : (tensor<128x64xf32>) -> tensor<64x128xf32>
      %51 = "stablehlo.all_reduce"(%24) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<f32>) -> tensor<f32>
      %52 = "stablehlo.all_reduce"(%50) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<64x128xf32>) -> tensor<64x128xf32>
      %53 = "stablehlo.all_reduce"(%48) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<128xf32>) -> tensor<128xf32>
      %54 = "stablehlo.all_reduce"(%42) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<128x128xf32>) -> tensor<128x128xf32>
      %55 = "stablehlo.all_reduce"(%40) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<128xf32>) -> tensor<128xf32>
      %56 = "stablehlo.all_reduce"(%34) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<128x10xf32>) -> tensor<128x10xf32>
      %57 = "stablehlo.all_reduce"(%32) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg30: tensor<f32>, %arg31: tensor<f32>):
        %94 = stablehlo.add %arg30, %arg31 : tensor<f32>
        stablehlo.return %94 : tensor<f32>
      }) : (tensor<10xf32>) -> tensor<10xf32>
      %cst_13 = stablehlo.constant dense<0.899999976> : tensor<f32>
      %58 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
      %59 = stablehlo.multiply %58, %arg21 : tensor<64x128xf32>
      %60 = stablehlo.add %59, %52 : tensor<64x128xf32>
      %cst_14 = stablehlo.constant dense<0.899999976> : tensor<f32>
      %61 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<128xf32>
      %62 = stablehlo.multiply %61, %arg22 : tensor<128xf32>
      %63 = stablehlo.add %62, %53 : tensor<128xf32>
      %cst_15 = stablehlo.constant dense<0.899999976> : tensor<f32>
      %64 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
      %65 = stablehlo.multiply %64, %arg23 : tensor<128x128xf32>
      %66 = stablehlo.add %65, %54 : tensor<128x128xf32>
      %cst_16 = stablehlo.constant dense<0.899999976> : tensor<f32>
      %67 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<128xf32>
      %68 = stablehlo.multiply %67, %arg24 : tensor<128xf32>
      %69 = stablehlo.add %68, %55 : tensor<128xf32>
      %cst_17 = stablehlo.constant dense<0.899999976> : tensor<f32>
      %70 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
      %71 = stablehlo.multiply %70, %arg25 : tensor<128x10xf32>
      %72 = stablehlo.add %71, %56 : tensor<128x10xf32>
      %cst_18 = stablehlo.constant dense<0.899999976> : tensor<f32>
      %73 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<10xf32>
      %74 = stablehlo.multiply %73, %arg26 : tensor<10xf32>
      %75 = stablehlo.add %74, %57 : tensor<10xf32>
      %76 = stablehlo.broadcast_in_dim %arg27, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
      %77 = stablehlo.multiply %76, %60 : tensor<64x128xf32>
      %78 = stablehlo.subtract %arg15, %77 : tensor<64x128xf32>
      %79 = stablehlo.broadcast_in_dim %arg27, dims = [] : (tensor<f32>) -> tensor<128xf32>
      %80 = stablehlo.multiply %79, %63 : tensor<128xf32>
      %81 = stablehlo.subtract %arg16, %80 : tensor<128xf32>
      %82 = stablehlo.broadcast_in_dim %arg27, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
      %83 = stablehlo.multiply %82, %66 : tensor<128x128xf32>
      %84 = stablehlo.subtract %arg17, %83 : tensor<128x128xf32>
      %85 = stablehlo.broadcast_in_dim %arg27, dims = [] : (tensor<f32>) -> tensor<128xf32>
      %86 = stablehlo.multiply %85, %69 : tensor<128xf32>
      %87 = stablehlo.subtract %arg18, %86 : tensor<128xf32>
      %88 = stablehlo.broadcast_in_dim %arg27, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
      %89 = stablehlo.multiply %88, %72 : tensor<128x10xf32>
      %90 = stablehlo.subtract %arg19, %89 : tensor<128x10xf32>
      %91 = stablehlo.broadcast_in_dim %arg27, dims = [] : (tensor<f32>) -> tensor<10xf32>
      %92 = stablehlo.multiply %91, %75 : tensor<10xf32>
      %93 = stablehlo.subtract %arg20, %92 : tensor<10xf32>
      sdy.return %51, %78, %81, %84, %87, %90, %93, %60, %63, %66, %69, %72, %75 : tensor<f32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>
    } : (tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<f32>, tensor<64x64xf32>, tensor<64xi32>) -> (tensor<f32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>)
    return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5, %0#6, %0#7, %0#8, %0#9, %0#10, %0#11, %0#12 : tensor<f32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>
  }
  func.func private @relu(%arg0: tensor<16x128xf32>) -> tensor<16x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x128xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<16x128xf32>
    return %1 : tensor<16x128xf32>
  }
  func.func private @log_softmax(%arg0: tensor<16x10xf32>) -> (tensor<16x10xf32>, tensor<16x10xf32>, tensor<16x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<16x10xf32>, tensor<f32>) -> tensor<16xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<16xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<16xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<16xf32>) -> tensor<16x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<16x1xf32>) -> tensor<16x10xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<16x10xf32>
    %6 = stablehlo.exponential %5 : tensor<16x10xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<16x10xf32>, tensor<f32>) -> tensor<16xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<16xf32>) -> tensor<16x1xf32>
    %9 = stablehlo.log %8 : tensor<16x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<16x1xf32>) -> tensor<16x10xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<16x10xf32>
    return %11, %6, %8 : tensor<16x10xf32>, tensor<16x10xf32>, tensor<16x1xf32>
  }
  func.func private @_one_hot(%arg0: tensor<16xi32>) -> tensor<16x10xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0] : (tensor<16xi32>) -> tensor<16x1xi32>
    %1 = stablehlo.iota dim = 1 : tensor<1x10xi32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<16x1xi32>) -> tensor<16x10xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x10xi32>) -> tensor<16x10xi32>
    %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<16x10xi32>, tensor<16x10xi32>) -> tensor<16x10xi1>
    %5 = stablehlo.convert %4 : (tensor<16x10xi1>) -> tensor<16x10xf32>
    return %5 : tensor<16x10xf32>
  }
  func.func private @log_softmax_0(%arg0: tensor<16x10xf32>, %arg1: tensor<16x1xf32>, %arg2: tensor<16x10xf32>) -> tensor<16x10xf32> {
    %0 = stablehlo.negate %arg2 : tensor<16x10xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<16x10xf32>, tensor<f32>) -> tensor<16xf32>
    %2 = stablehlo.reshape %1 : (tensor<16xf32>) -> tensor<16x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<16x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<16x1xf32>, tensor<f32>) -> tensor<16xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<16xf32>) -> tensor<16x10xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<16x10xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<16x10xf32>
    return %7 : tensor<16x10xf32>
  }
}
