"""Loops as the programs of these tests write them."""

#: The head of a loop of three turns, whose first value is %i, and the start of its body: %j is the next %i.
THREE_TURNS = """cond { %n = stablehlo.constant dense<3> : tensor<i32>
        %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %t : tensor<i1> } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>"""
