"""NumPy kernels: one family of ops per module, registered in `spmd.backends.kernels.KERNELS`."""

from importlib import import_module
from pkgutil import iter_modules

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
