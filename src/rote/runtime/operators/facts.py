"""What is known of an operation from its schema, its tags and its row of the table, worked out once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .torch_private import has_python_kernel, schema_of

Row = Mapping[str, str]
"""Facts of one operator, each with its reason; the head of the file explains the words."""


@cache
def table() -> Mapping[str, Mapping[str, Row]]:
    """The rows by namespace and name."""
    lines = tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))
    return {
        namespace: {name: row for names, row in rows.items() for name in names.split()}
        for namespace, rows in lines.items()
    }


def row_of(name: str) -> Row:
    """What the table says of an overload: of its namespace, of all overloads of the name, and of itself."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    rows, found = table().get(namespace, {}), dict[str, str]()
    for key in ("*", packet, f"{packet}.{overload or 'default'}"):
        found.update(rows.get(key, {}))
    return found


def rows_with(fact: str) -> Iterator[tuple[str, str]]:
    """PyTorch's own operators with a fact in the table, each with what stands beside the fact."""
    return ((name, row[fact]) for name, row in table()["aten"].items() if fact in row)


_VALUES = frozenset({"bool", "int", "float", "number", "Scalar"})
_SIZES = frozenset({"SymBool", "SymInt", "SymFloat"})
"""PyTorch's own operations calculate these from shapes; in other schemas they are any numbers."""
_SIZE = re.compile(r"Sym(?:Int|Bool|Float) (\w+)")
"""A named size among results; only the text of a schema tells it from a number."""
_OBJECT = "__torch__"
"""How the types of C++ objects begin."""
_GROUP = ".classes.c10d."
_PARAMETER = re.compile(r"(?P<role>-|1/|)(?P<name>\w+)")
_RECEIVING = frozenset({
    "tensor", "tensors", "output", "outputs", "output_tensor", "output_tensors", "output_lists",
})  # fmt: skip
"""Operands into which a collective receives; schemas do not say it."""
_REDUCING = frozenset({
    "allreduce_", "allreduce_coalesced_", "reduce_", "all_reduce_", "all_reduce_coalesced_",
})  # fmt: skip
"""Collectives that read all that they fill."""
_SENDING = frozenset({"c10d::send", "_c10d_functional::isend"})
"""They have one of these names for what they only read."""
_OF_MANY = "_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad"
"""How operators begin that compute one element after the other, as pointwise ones do, and have no tag."""
_OF_PYTORCH = frozenset({
    "aten", "prims", "quantized", "_quantized", "sparse", "mkldnn", "onednn", "inductor", "profiler", "c10d",
    "fsdp", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "rngprims", "debugprims", "streams",
    "static_runtime",
})  # fmt: skip
"""Namespaces of operators that PyTorch brings."""
_OWN = "rote_"
LAUNCHED = "rote_launched"
"""The namespace of operators that stand for the launch of a kernel; see :mod:`.launches`."""
_TOLD = frozenset({"fsdp", LAUNCHED})
"""Namespaces besides ``aten`` whose operators draw no random numbers."""
_TICKET = "Tensor ticket"
"""What an operator takes or returns that keeps an autograd graph of its own, as calls in compiled code do."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one operation.

    Attributes:
        name: ``namespace::name.overload``.
        row: What the table says of it.
        dynamic: The shape of its result depends on data, or it returns values beside tensors that do.
        unsized: A library brings it, and nobody says whether the shape of its result depends on data.
        mutable: Its schema declares that it writes an operand.
        written: Positions and names of the operands it writes, declared or not.
        training: Position of a flag without which it writes none of them.
        overwrites: It does not read what it writes. Some write parts only; others usually write the rest.
        scaled: It reads its first operand only if ``beta`` is not zero.
        asks_shapes: It uses only the shapes or the memory addresses of its operands.
        blank: Its result is memory that it has not written.
        seeded: It may draw random numbers.
        dropout: Position of the dropout probability of an attention, which draws none at 0.
        beside: It returns values that are no tensors, beside tensors or in lists.
        reads: The host reads its value.
        checks: The host reads its operand, and raises or does nothing.
        indexed: It indexes, and a mask among the indices is counted on the host.
        stores: It writes through an index.
        refused: Why no CUDA graph may hold it, though neither shapes nor values tell; perhaps only for some
            operands.
        apart: It is never captured, though neither shapes nor values tell, but runs between two segments.
        collective: It acts on other processes. Nothing may run it once more or leave it out, or the others
            wait for what never comes.
        transfers: It is a collective that a replay issues as the call does, between two segments.
        ticketed: It keeps an autograd graph of its own, or walks back through one.
        hidden: It is no computation (profiler marks, questions about shapes, notes for the allocator).
        simple: Only the devices of its operands decide where it runs.
        reshapes: It may change the shape of an operand.
        relocates: It changes which memory a tensor has, and writes none.
        fixed: It is PyTorch's own, only makes results, and gives equal bits for equal operands.
        own: It is PyTorch's own.
        functional: It is of a library, writes nothing, and its results are no operand's memory; the library
            says that it keeps to its schema (``torch.Tag.pt2_compliant_tag``).
        total: It raises for no values of its operands.
        parameters: Numbers among its operands, by name, that are parameters of its kernels and nothing else,
            each with what the kernels take: ``""`` the number, ``"-"`` its negative, ``"1/"`` its inverse.
    """

    op: Any
    name: str
    row: Row
    dynamic: bool
    unsized: bool
    mutable: bool
    written: tuple[tuple[int, str], ...]
    training: int | None
    overwrites: bool
    scaled: bool
    asks_shapes: bool
    blank: bool
    seeded: bool
    dropout: int | None
    beside: bool
    reads: bool
    checks: bool
    indexed: bool
    stores: bool
    refused: str | None
    apart: bool
    collective: bool
    transfers: bool
    ticketed: bool
    hidden: bool
    simple: bool
    reshapes: bool
    relocates: bool
    fixed: bool
    own: bool
    functional: bool
    total: bool
    parameters: tuple[tuple[str, str], ...]

    @property
    def told(self) -> bool:
        """Whether its schema and its row tell all of it: that of another library may draw random numbers."""
        return self.own or self.hidden or self.transfers or self.op.namespace in _TOLD

    @property
    def foreign(self) -> bool:
        """Whether it is code in C++ that a library brings: nobody says on which stream its kernels run."""
        return not (_is_of_pytorch(self.op) or self.collective or has_python_kernel(self.op))

    @property
    def launches(self) -> bool:
        """Whether it is the launch of a kernel: a function of its operands that may write some of them."""
        return self.op.namespace == LAUNCHED

    @property
    def short(self) -> str:
        """Its name as people write it: ``add`` for ``aten::add.Tensor``."""
        return short(self.name)


def _is_of_pytorch(func: Any) -> bool:
    """Whether PyTorch or rote brings an operator."""
    return func.namespace in _OF_PYTORCH or func.namespace.startswith(_OWN)


def _is_functional(func: Any, schema: Any) -> bool:
    told = torch.Tag.pt2_compliant_tag in func.tags
    aliases = any([each.alias_info is not None for each in (*schema.arguments, *schema.returns)])
    return told and not schema.is_mutable and not aliases


@cache
def facts_of(func: Any) -> Facts:
    """The facts of an operator overload."""
    schema, name, own = schema_of(func), func.name(), func.namespace == "aten"
    row, arguments, packet = row_of(name), schema.arguments, name.partition("::")[2].partition(".")[0]
    transfers = "transfers" in row
    undeclared = row.get("writes", "").split() or _received(name, schema, transfers=transfers)
    positions = {argument.name: position for position, argument in enumerate(arguments)}
    hidden = "hidden" in row
    writes = [
        each.name in undeclared or (not hidden and each.alias_info is not None and each.alias_info.is_write)
        for each in arguments
    ]
    numbers, values = _returned_values(func)
    refused = _refused(func, row)
    indexed, stores = "indexed" in row, "stores" in row
    dynamic, reads = torch.Tag.dynamic_output_shape in func.tags or values, numbers and not hidden
    collective = "collective" in row or _GROUP in str(schema)
    fresh = bool(schema.returns) and not any([each.alias_info for each in schema.returns])
    unsized = fresh and not (collective or _is_of_pytorch(func))
    odd = dynamic or unsized or reads or indexed or stores or hidden
    ticketed = not own and _TICKET in str(schema)
    relocates = torch.Tag.inplace_view in func.tags
    into = "overwrites" in row and bool(row.get("writes"))  # and its schema does not say that it writes
    outputs = all(each.kwarg_only for each, is_written in zip(arguments, writes, strict=True) if is_written)
    seeded = torch.Tag.nondeterministic_seeded in func.tags or any(
        ["Generator" in str(argument.type) for argument in arguments]
    )
    pure = own and not any(writes) and not (seeded or reads or hidden or collective or "blank" in row)
    fixed = torch.Tag.pointwise in func.tags or not row.keys().isdisjoint(("fixed", "made"))
    of_shape = "blank" in row or packet.startswith("new_") or packet.endswith("_like") or "unread" in row
    return Facts(
        op=func,
        name=name,
        row=row,
        dynamic=dynamic,
        unsized=unsized,
        mutable=schema.is_mutable and not hidden,
        written=tuple((n, each.name) for n, each in enumerate(arguments) if writes[n]),
        training=positions.get("training") if undeclared else None,
        # the schema of another library says no more
        overwrites=packet not in _REDUCING
        and (transfers or into or (schema.is_mutable and (not own or "overwrites" in row or outputs))),
        scaled=own and any(each.name == "beta" and each.kwarg_only for each in arguments),
        asks_shapes=func.is_view or relocates or (own and (of_shape or "aliases" in row)),
        blank="blank" in row,
        seeded=seeded,
        dropout=positions.get("dropout_p") if "attention" in name else None,
        beside=values,
        reads=reads,
        checks="checks" in row,
        indexed=indexed,
        stores=stores,
        refused=refused,
        apart=transfers or (refused is not None and row.keys().isdisjoint(("checks", "may_wait"))),
        collective=collective,
        transfers=transfers,
        ticketed=ticketed,
        hidden=hidden,
        simple=not (odd or collective or ticketed or "checks" in row),
        reshapes=schema.is_mutable or not own,  # the schema of another library need not say it
        relocates=relocates,
        fixed=pure and fixed,
        own=own,
        functional=not own and _is_functional(func, schema),
        total=own and (fixed or "total" in row or packet.startswith(_OF_MANY)) and not _raises(name, row),
        parameters=_parameters(name),
    )


@cache
def overload_named(name: str) -> Any:
    """The overload of a qualified name, ``namespace::name.overload``.

    Raises:
        LookupError: No library that is loaded has it.
    """
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        raise LookupError(f"no library that is loaded has the operator {name}") from None


def is_named(func: Any, names: Collection[str]) -> bool:
    """Whether names contain an overload: ``mylib::op``, ``mylib::op.overload``, ``mylib::op.default``."""
    return bool(names) and any([name in names for name in names_of(func)])


def names_of(func: Any) -> tuple[str, str]:
    """The name of all overloads and that of one, as users write them: the latter has ``.default``."""
    packet, name = str(func._schema.name), func.name()
    return packet, name if name != packet else f"{name}.default"


def short(name: str) -> str:
    """A name as people write it: ``add`` for ``aten::add.Tensor``."""
    return name.removeprefix("aten::").partition(".")[0]


def _raises(name: str, row: Row) -> bool:
    """Whether the table says that an operator raises for some values, or the one that it does in place."""
    return "raises" in row or "raises" in _row_not_in_place(name)


def _row_not_in_place(name: str) -> Row:
    packet, _, overload = name.partition(".")
    return row_of(f"{packet.removesuffix('_')}.{overload or 'default'}")


def _parameters(name: str) -> tuple[tuple[str, str], ...]:
    said = _row_not_in_place(name).get("parameters", "").split()
    found = [_PARAMETER.fullmatch(each) for each in said]
    return tuple([(each["name"], each["role"]) for each in found if each is not None])


def _refused(func: Any, row: Row) -> str | None:
    if torch.Tag.cudagraph_unsafe in func.tags and not func.is_view:
        return "is tagged as unsafe in CUDA graphs"
    why = next((row[fact] for fact in ("waits", "checks", "may_wait") if fact in row), None)
    return None if why is None else f"waits for the device: {why}"


def _received(name: str, schema: Any, *, transfers: bool) -> list[str]:
    """The operands that a collective fills."""
    if not transfers or name in _SENDING:
        return []
    return [each.name for each in schema.arguments if each.name in _RECEIVING]


def _returned_values(func: Any) -> tuple[bool, bool]:
    """Whether an operation returns only numbers, which the host reads, or values beside tensors.

    Without tensor operands PyTorch's own operations calculate them from their operands (``can_cast``), those
    of other libraries from anything.
    """
    schema = schema_of(func)
    own = func.namespace == "aten"
    sizes = _SIZE.findall(str(schema).rpartition(") -> ")[2]) if own else []
    kinds = ["SymInt" if value.name in sizes else str(value.type) for value in schema.returns]
    if own and not any("Tensor" in str(argument.type) for argument in schema.arguments):
        return False, False
    values = [kind in _VALUES if own else "Tensor" not in kind and kind[:9] != _OBJECT for kind in kinds]
    simple = bool(kinds) and all(kind in _VALUES or kind in _SIZES or kind == "str" for kind in kinds)
    return simple and all(values), any(values) and not simple
