"""alpha * x + y, built with ComputationBuilder and run by its client: with parameters, and with constants.

python examples/builder/axpy.py
"""

from collections.abc import Sequence

from spmd.builder import ClientLibrary, ComputationBuilder, Literal


def compute_axpy_parameters(alpha: Literal, x: Literal, y: Literal) -> Literal:
    """The data are arguments: the computation is compiled once, and runs on any data of these shapes."""
    client = ClientLibrary.ClientOrDie()
    builder = ComputationBuilder(client, "axpy")

    # The graph: a function of three parameters with a single output.
    param_alpha = builder.Parameter(0, alpha.shape(), "alpha")
    param_x = builder.Parameter(1, x.shape(), "x")
    param_y = builder.Parameter(2, y.shape(), "y")
    builder.Add(builder.Mul(param_alpha, param_x), param_y)
    computation = builder.Build()

    # The parameters go to the server, which gives handles to them.
    arguments = [client.TransferToServer(literal) for literal in (alpha, x, y)]
    return client.ExecuteAndTransfer(computation, arguments)


def compute_axpy_constants(alpha: float, x: Sequence[float], y: Sequence[float]) -> Literal:
    """The data are part of the program, which may be simplified for them."""
    client = ClientLibrary.ClientOrDie()
    builder = ComputationBuilder(client, "axpy")
    constant_alpha = builder.ConstantR0(alpha)
    constant_x = builder.ConstantR1(x)
    constant_y = builder.ConstantR1(y)
    builder.Add(builder.Mul(constant_alpha, constant_x), constant_y)
    return client.ExecuteAndTransfer(builder.Build())


def main() -> None:
    alpha, x, y = 2.0, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]
    print("parameters:", compute_axpy_parameters(Literal(alpha), Literal(x), Literal(y)))
    print("constants: ", compute_axpy_constants(alpha, x, y))


if __name__ == "__main__":
    main()
