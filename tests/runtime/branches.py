"""Programs whose last replica alone takes a branch in which its two partitions communicate; then all processes do."""

BODY = """({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    })"""
HANDLE = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>"
ONE = "(tensor<f32>) -> tensor<f32>"
#: What the partitions of one replica do, which gives %1.
OPS = {
    "permute": f"""%1 = "stablehlo.collective_permute"(%x) {{
      source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>, {HANDLE.format(1)}}} : {ONE}""",
    "permute one way": f"""%1 = "stablehlo.collective_permute"(%x) {{
      source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>, {HANDLE.format(1)}}} : {ONE}""",
    "permute twice": f"""%0 = "stablehlo.collective_permute"(%x) {{
      source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>, {HANDLE.format(1)}}} : {ONE}
    %1 = "stablehlo.collective_permute"(%0) {{
      source_target_pairs = dense<[[1, 0]]> : tensor<1x2xi64>, {HANDLE.format(1)}}} : {ONE}""",
    "all_reduce": f"""%1 = "stablehlo.all_reduce"(%x) {BODY} {{
      replica_groups = dense<PAIRS> : tensor<REPLICASx2xi64>, {HANDLE.format(1)}, use_global_device_ids}} : {ONE}""",
    "broadcast": f"""%1 = "stablehlo.collective_broadcast"(%x) {{
      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, {HANDLE.format(1)}}} : {ONE}""",
    "send": """%t = stablehlo.after_all : !stablehlo.token
    %2 = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
      is_host_transfer = false, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
      : (tensor<f32>, !stablehlo.token) -> !stablehlo.token
    %1, %3 = "stablehlo.recv"(%2) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
      is_host_transfer = false, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
      : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)""",
}


def program(op: str, replicas: int) -> str:
    """Return the program on a grid of `replicas` by 2; it takes f32[] and gives the sum of what all processes have."""
    pairs = [[2 * replica, 2 * replica + 1] for replica in range(replicas)]
    inside = OPS[op].replace("PAIRS", str(pairs)).replace("REPLICAS", str(replicas))
    return f"""func.func @main(%x: tensor<f32>) -> tensor<f32> {{
  %id = stablehlo.replica_id : tensor<ui32>
  %last = stablehlo.constant dense<{replicas - 1}> : tensor<ui32>
  %is = stablehlo.compare EQ, %id, %last : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
  %r = "stablehlo.if"(%is) ({{
    {inside}
    stablehlo.return %1 : tensor<f32>
  }}, {{
    stablehlo.return %x : tensor<f32>
  }}) : (tensor<i1>) -> tensor<f32>
  %sum = "stablehlo.all_reduce"(%r) {BODY} {{
    replica_groups = dense<[{list(range(2 * replicas))}]> : tensor<1x{2 * replicas}xi64>, {HANDLE.format(2)},
    use_global_device_ids}} : {ONE}
  return %sum : tensor<f32>
}}"""


def total(op: str, replicas: int) -> float:
    """Return what the program gives where process r has 10^r."""
    *others, first, second = (10.0**rank for rank in range(2 * replicas))
    both = {"permute": first + second, "permute one way": first, "permute twice": first, "send": first}
    return sum(others) + both.get(op, 2 * (first + second) if op == "all_reduce" else 2 * first)
