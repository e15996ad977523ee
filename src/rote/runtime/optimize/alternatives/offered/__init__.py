"""What an alternative is, and what those with kernels of their own have to know of a GPU."""

from .gpu import HOPPER, OLDEST, KernelParameter, memory_for, properties_of, triton_kernel
from .offered import Alternative, AlternativeRun, Alternatives, JointAlternative, Operands
