"""Random programs about numbers that change: their text, and a scene in which they are called.

A program is text made of pieces: expressions of numbers from arguments, attributes, items, closures and
tensors, operations with them, branches, and writes outside. Pieces that nothing is known of are among them,
since a number has to be a condition there.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

import rote

_NUMBERS = ("s", "t", "k", "self.step", "self.lr", "GROUP['lr']", "cfg.beta", "LIST[0]", "CELL")
_FIXED = ("0.5", "2.0", "1e-3", "3", "-1", "0", "0.0", "-0.0", "7")
_READ = ("x.sum().item()", "float(y.max())", "xi.max().item()", "int(xi[0])", "self.buf.item()")
_COMPUTED = (
    "({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} / ({b} or 1))", "(abs({a}) ** 0.5)", "min({a}, {b})",
    "max({a}, {b})", "float({a})", "int({a})", "-({a})", "round({a}, 2)", "math.sqrt(abs({a}))",
    "math.cos({a})", "({a} if {b} > {c} else {c})", "({a} // ({b} or 2))", "({a} % ({b} or 3))",
    "helper({a}, {b})", "[{a}, {b}][0]", "({a}, {b})[1]", "dict(q={a})['q']", "(lambda z: z * 2)({a})",
    "sum([{a}, {b}])", "math.floor({a})", "(1 - 0.9 ** min(abs({a}), 50))", "{{'k': {a}}}.get('k', {b})",
    "next(iter([{a}]))", "float(str({a}))", "Box({a}).v", "Box({a}).double", "len([0] * (int(abs({a})) % 5))",
    "TABLE[int(abs({a})) % 3]", "float('%.3f' % {a})", "sorted([{a}, {b}])[0]", "list(map(float, [{a}]))[0]",
    "partial(helper, {a})({b})", "(divmod({a}, 3)[0])", "summed({a})", "np.float64({a}).item()",
    "float(np.array([{a}])[0])", "copy.copy({a})", "hash({a}) % 7", "({a} or {b})", "({a} and {b})",
    "(not {a}) * 1", "any([{a}]) + 0", "reduce(lambda p, q: p + q, [{a}, {b}])", "isinstance({a}, float) * 2",
    "(type({a}) is int) * 3", "int({a}).bit_length()", "spread(*[{a}, {b}])", "Pair({a}, {b}).y",
    "(1 if {a} in (0, 1, 2.0) else 2)", "(int({a}) & 3)", "float(np.float32(2) * {a})",
    "(alone({a}) is alone({b})) * 1", "Sized({a}).size()", "getattr(Box({a}), 'v')",
    "format({a}, '.2f').count('1')",
)  # fmt: skip
WRITTEN = (
    "str({a})", "repr({a})", "format({a}, '.3g')", "(lambda z: f'{{z}}')({a})", "'%s of %.1f' % ({a}, {b})",
    "(lambda z, q: f'{{z:.2f}} of {{q}}')({a}, {b})", "('%d' % min(abs({a}), 1e6))", "'%s' % {a}",
    "'{{}} {{:.2e}}'.format({a}, {b})", "(lambda z: f'{{z!r:>9}}|{{z!s}}|{{z!a}}')({a})", "({t} + '!')",
    "({t} + {t})", "'-'.join([{t}, str({b})])", "(lambda z: f'{{z}}')({t})", "'{{1}}{{0}}'.format({a}, {t})",
    "(lambda z: f'{{z:n}}')({a})", "'{{0:n}}'.format({a})", "'%(n)s' % {{'n': {a}}}", "({t} or 'none')",
    "[{t}, 'a'][0]", "{{'k': {t}}}['k']", "max({t}, {t})", "{t}[:2]", "{t}.upper()", "Box({t}).v", "str({t})",
    "(lambda z, q: f'{{z:{{q}}}}')({a}, '.1f')", "'%s%%' % {t}", "alone({t})", "copy.copy({t})", "({t} * 2)",
    "str(int({a}) % 10)", "(lambda z: f'{{z % 10}}')(int({a}))", "sorted([{t}, '5'])[0]", "str(not {a})",
    "str(np.float32({a}))", "(lambda z: f'{{z:>{{len(z) + 1}}}}')({t})", "'{{0.real}}'.format({a})",
    "str(Kept([{a}]))", "({t} + 'x').removesuffix('x').ljust(int({a}) % 12, '.')",
    "'{{v:>{{w}}}}'.format(v={t}, w=int({a}) % 30)", "'{{v[0]}} {{w.v}}'.format(v=[{a}], w=Box({b}))",
    "{t}.title().zfill(7)", "str([{a}, ({b}, None), {{'k': {t}}}])", "str(SHARED + [{a}])",
    "'; '.join([str(z) for z in [{a}, {b}]])", "json.dumps(Keyed(v={a}))",
    "('%(v' + str(int({a}) % 2) + ')s') % VS", "'{{v:.2f}} {{}} {{w}}'.format({a}, v={b}, w={t})",
    "json.dumps({{'k': Box({a})}}, default=lambda box: box.v)",
    "json.dumps({{'b': {a}, 'a': ({b},)}}, sort_keys=True, separators=(',', ':'))",
    "{t}.replace('0', '5').rjust(9).strip('5 ')", "'%(v)d' % Keyed(v={a})", "changed({a}, {t})",
    "'%(v).2f, %(w)s: 5%%' % {{'v': {a}, 'w': {t}, 'z': Box({b})}}",
    "('{{v:.' + str(int({a}) % 4) + 'f}}').format(v={b})", "json.JSONEncoder().encode([{a}])",
    "json.dumps({{'step': {a}, 'l': [{b}, None, True], 't': {t}}})", "json.dumps([{a}, {t}], indent=1)",
    "repr({{int({a}) % 3: {b}, 'q': 1}})", "'%(v)s' % {{'v': [{a}, {t}]}}",
    "(lambda z: f'{{z}}')({{'k': {a}, 'l': [{b}]}})", "json.dumps({a}, cls=Encoder)",
    "'%s %s' % ([{a}], ({b}, {t}))",
)  # fmt: skip
"""Numbers written as text."""
LOOKS = (
    "len({t})", "({t} == '0') * 1", "('1' in {t}) + 0", "{t}.count('1')", "{{{t}: 1}}.get('0', 2)",
    "({t} < '5') * 1", "sum(map(ord, {t})) % 7", "len({{{t}, '0'}})", "(hash({t}) == hash('0')) * 1",
    "(1 if {t} else 2)", "len({t}.encode())", "getattr(SimpleNamespace(**{{'q' + {t}: 5}}), 'q0', 3)",
    "(lambda **z: len(str(z)))(**{{'k' + {t}: 1}})", "{t}.__len__()", "int({t}.isdigit())",
    "ord(({t} + 'x')[0])",
    "len(list({t}))", "(copy.copy({t}) == {t}) * 1", "len([z for z in {t} if z in '05'])",
    "len({t}.split('.'))",
    "matched({t})", "raised({t})", "len(tuple(enumerate({t})))", "int(not {t})", "len({t}.join('ab'))",
    "(isinstance({t}, str) * 2)", "len(yielding({t}))", "(Pair({t}, 1) == Pair('0', 1)) * 1",
    "len(Named({t}).name)",
    "({t} in ('0', '1.0')) * 1", "({t} in {{'0': 1}}) * 1", "len(bytes({t}, 'ascii', 'replace'))",
    "sys.stderr.write({t})", "(lambda z: len(f'{{[z]}}') + len(z))({t})", "len(str({{'k': {t}}})) % 5",
    "len(json.loads(json.dumps([{t}]))[0])", "len({t}.strip('0'))", "int({t}.startswith('0'))",
    "len(eval(repr({t})))", "len(format({t}, '>12'))", "len({t}.replace('0', ''))", "(({t} is {t}) and 0)",
)  # fmt: skip
"""Looks at such a text, which give a number."""
_OPERATIONS = (
    "x * {n}", "x + {n}", "{n} - x", "x / ({n} or 1)", "{n} / (x + 3)", "x.add(y, alpha={n})",
    "x.clone().add_(y, alpha={n})", "x.clone().addcmul_(x, y, value={n})", "torch.lerp(x, y, {f})",
    "x.clamp(min=-abs({n}))", "store(x.clone(), int(abs({n})) % 3, {n})", "store(x.clone(), x > 0, {f})",
    "x ** int(abs({n}) % 4)",
    "(abs(x) + 1) ** ({n} * 0.01)", "torch.where(x > {n}, x, {f})", "x.masked_fill(x > 0, {f})",
    "(x > {n}).float()", "x.roll(int({n}), 0)", "x[int(abs({n})) % 3] + x", "torch.tensor({f}) * x",
    "torch.tensor([{f}, {f}, {f}]) * x", "x * (y.sum() * {n})", "torch.mul(x, {n})",
    "torch.sub(x, y, alpha={n})", "x.clone().mul_({f})", "torch.nn.functional.leaky_relu(x, {f})",
    "torch.nn.functional.elu(x, alpha={f})", "x % ({n} or 1)", "x // ({n} or 1)", "x == {n}",
    "(1 + abs({n}) % 3) ** x", "torch.addcdiv(x, y, abs(y) + 1, value={n})",
    "torch._foreach_add([x, y], {f})[0]",
    "torch._foreach_mul([x, y], {f})[1]", "torch.full((3,), {f})", "torch.arange(3) * {n}",
    "x.new_full((3,), {f})", "torch.rsub(x, {f})", "torch.clip(x, -1.0, abs({f}))",
    "xi * int({n})", "xi + {n}",
    "x.float().sub_({f})", "torch.func.grad(lambda w: (w * {f}).sum())(x)", "(w * {n}).detach()",
    "torch.autograd.grad((w * {f}).square().sum(), w)[0]", "torch.vmap(lambda r: r * {f})(x)",
    "put(self.cache.clone(), int(abs({n})) % 7, x)",
    "put(self.cache.clone(), slice(self.step % 5, self.step % 5 + 2), y)",
    "self.cache[:, int(abs({n})) % 7] * 1", "self.cache.narrow(1, int(abs({n})) % 5, 2).sum(1)",
    "torch.arange(int(abs({n})) % 99, int(abs({n})) % 99 + 3) * x", "torch.tensor([[{n}], [{n}]]) * x",
    "x.new_tensor({n}) * x", "self.cache.index_select(1, torch.tensor([int(abs({n})) % 7]))[:, 0] * x",
    "torch._foreach_mul([x, y], [{f}, {f}])[0]", "torch._foreach_addcdiv([x], [x], [y], [{f}])[0]",
    "torch.autograd.grad(((w * x) * {n} + w / ({n} or 1) - {n}).sum(), w)[0]",
    "torch.autograd.grad((w.clamp(min={n}) + (w + 1) ** {f}).sum(), w)[0]",
    "torch.autograd.grad(torch.add(x, w * w, alpha={n}).sum() * {f}, w)[0]",
    "torch.autograd.grad(torch.nn.functional.elu(w * x, {f}).sum(), w)[0]",
    "torch.autograd.grad((w.square() * {n}).sum(), w, create_graph=True)[0].detach()",
)  # fmt: skip
_WRITES = (
    "self.step += 1", "self.step = self.step + 1", "self.acc = {n}", "GROUP['last'] = {n}",
    "HIST.append({n})",
    "self.d['q'] = {n}", "LIST[1] = {n}", "self.lr = self.lr * 0.97", "self.buf.add_(1)",
    "self.pair = ({n}, [{n}])", "self.cache[:, self.step % 7] = x", "self.cache[:, int(abs({n})) % 7] = y",
    "self.cache[..., self.step % 7] = {f}",
    "HIST.append({t})", "GROUP['text'] = {t}", "self.name = {t}", "self.pair = ({t}, [{t}])",
    "self.d['t'] = {t}",
    "HIST[:] = [{t}]", "GROUP.setdefault({t}[:1], 0)", "setattr(self, 'n' + {t}[:1], 1)",
)  # fmt: skip
SCENE = """
import copy, json, math, sys, torch, collections, numpy as np
from functools import partial, reduce
from types import SimpleNamespace
class Box:
    def __init__(self, v): self.v = v
    @property
    def double(self): return self.v * 2
class Sized:
    def __init__(self, v): self.v = int(abs(v)) % 9
    def __len__(self): return self.v
    def size(self): return len(self)
Pair = collections.namedtuple('Pair', 'x y')
def helper(a, b=1): return a * 0.5 + b
def alone(a): return a
SHARED, VS = [0.5], {'v0': 'zero', 'v1': 1}
class Keyed(dict):
    def __getitem__(self, key): return dict.__getitem__(self, key) + 1
class Kept(list):
    def __repr__(self): return 'kept ' + str(len(self))
class Encoder(json.JSONEncoder):
    def encode(self, o): return str(o) + '!'
def changed(a, text):
    held, more = [1, {'k': 2}], ['0', text]
    found = str([a, held, more])
    held[0] = held[1]['k'] = a
    more.clear()
    return found + str(held)
def put(c, i, v):
    c[:, i] = v if type(i) is int else v[:, None]
    return c
def store(c, i, v):
    c[i] = v
    return c
def spread(*a): return a[0] - a[1]
def summed(a):
    def each():
        yield a
        yield a + 1
    return sum(each())
class Named:
    def __init__(self, name): self.name = name
    def __eq__(self, other): return self.name == other.name
def matched(text):
    match text:
        case '0': return 1
        case _: return 2
def raised(text):
    try: raise ValueError(text)
    except ValueError as error: return len(str(error))
def yielding(text):
    def each():
        yield text
    return ''.join(each())
TABLE = [1.0, 2.5, 4]
def make():
    cfg, GROUP, LIST, HIST, CELL = SimpleNamespace(beta=0.9), {'lr': 0.1, 'last': 0}, [1.5, 2], [], 3
    w = torch.ones(3, requires_grad=True)
    class Program:
        def __init__(self):
            self.step, self.lr, self.acc, self.d, self.buf = 0, 0.5, 0, {'q': 0}, torch.zeros(())
            self.pair, self.cache = (), torch.zeros(3, 7)
        def run(self, x, y, xi, s, t=1, k=2):
BODY
    def set_cell(value):
        nonlocal CELL
        CELL = value
    return SimpleNamespace(
        program=Program(), cfg=cfg, group=GROUP, numbers=LIST, history=HIST, set_cell=set_cell
    )
"""


PIECES = {*_NUMBERS, *_FIXED, *_READ, *_COMPUTED, *WRITTEN, *LOOKS, *_OPERATIONS, *_WRITES}


class Writer:
    """The text of one program; ``used`` are the pieces in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.used: set[str] = set()
        self.variables = 0
        self.reads = self.random.random() < 0.4

    def choose(self, pieces: Sequence[str]) -> str:
        self.used.add(piece := self.random.choice(pieces))
        return piece

    def number(self, depth: int = 0) -> str:
        chance = self.random.random()
        if self.reads and chance < 0.06:
            return self.choose(_READ)
        if depth > 3 or chance < 0.35:
            return self.choose([*_NUMBERS, *[f"v{each}" for each in range(self.variables)]])
        if chance < 0.45:
            return self.choose(_FIXED)
        if chance > 0.97:
            return self.choose(LOOKS).format(t=self.text(depth + 1))
        a, b, c = (self.number(depth + 1) for _ in range(3))
        return self.choose(_COMPUTED).format(a=a, b=b, c=c)

    def text(self, depth: int = 0) -> str:
        pieces = WRITTEN if depth < 3 else [each for each in WRITTEN if "{t}" not in each]
        chosen = self.choose(pieces)
        t = self.text(depth + 1) if "{t}" in chosen else ""
        return chosen.format(a=self.number(depth + 1), b=self.number(depth + 1), t=t)

    def body(self) -> str:
        lines, results = [], 0
        for _ in range(self.random.randint(2, 7)):
            kind, n = self.random.random(), self.number(1)
            if kind < 0.3:
                lines.append(f"v{self.variables} = {n}")
                self.variables += 1
            elif kind < 0.42:
                chosen = self.choose(_WRITES)
                t = self.text() if "{t}" in chosen else ""
                lines.append(chosen.format(n=n, f=f"float({n})", t=t))
            elif kind < 0.5:
                lines.append(f"if {n} > {self.number()}: x = x + {self.number()}")
            elif kind < 0.55:
                lines.append(f"for _ in range(int(abs({n})) % 3): x = x * 1.5")
            else:
                lines.append(f"r{results} = {self.choose(_OPERATIONS).format(n=n, f=f'float({n})')}")
                results += 1
        found = ", ".join([f"r{each}" for each in range(results)])
        given = self.text() if self.random.random() < 0.4 else self.number()
        lines.append(f"return [{found}], {self.number()}, {{'a': {given}}}")
        return "\n".join(["            " + line for line in lines])


def bits(value: Any) -> Any:
    """A value to the bit, with types; all NaNs are one."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        kept = (
            torch.where(value.isnan(), torch.full_like(value, 7e7), value)
            if value.is_floating_point()
            else value
        )
        return str(value.dtype), tuple(value.shape), kept.cpu().numpy().tobytes()
    if isinstance(value, float):
        return "float", struct.pack("d", value) if value == value else b"nan"
    if isinstance(value, SimpleNamespace):
        value = {name: each for name, each in vars(value).items() if not callable(each)}
    if type(value).__name__ == "Program":
        value = vars(value)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [bits(each) for each in value]
    if isinstance(value, dict):
        return [(key, bits(each)) for key, each in value.items()]
    return type(value).__name__, value


def _values(kind: int, chance: random.Random, number: int) -> float:
    special = (0.0, -0.0, 1.0, 2.0, 0.5, -1.5, float("nan"), float("inf"), 1e308)
    whole = (0, 1, -1, 2, 255, 256, 257, -6, 2**31, 2**40)
    schedule = 0.1 * min(1.0, (number + 1) / 20) * (1 + math.cos(math.pi * number / 200)) / 2
    return (number, number * 0.25, chance.choice(special), chance.choice(whole), number % 7, schedule)[kind]


def play(seed: int, device: torch.device, calls: int = 14) -> tuple[int, str]:
    """Call a program plainly and graphed, and compare each call.

    Returns:
        How many calls were replayed, and what differs: nothing, most of the time.
    """
    text = SCENE.replace("BODY", Writer(seed).body())
    names: list[dict[str, Any]] = [{}, {}]
    for each in names:
        exec(compile(text, f"<numbers {seed}>", "exec"), each)
    graphed, plain = (each["make"]() for each in names)
    for each in (graphed, plain):
        each.program.buf, each.program.cache = each.program.buf.to(device), each.program.cache.to(device)
    run = rote.graph(graphed.program.run, keep=True)
    chance = random.Random(seed + 1)
    kind, mode, grad = chance.randint(0, 5), chance.randint(0, 7), chance.random() < 0.5
    for number in range(calls):
        made = torch.Generator().manual_seed(number)
        x, y = (torch.randn(3, generator=made).to(device) for _ in range(2))
        xi = torch.tensor([number, 2, -3], device=device)
        s = _values(kind, random.Random(seed * 100 + number), number)
        t, k = number if mode & 1 else 4, number * 0.5 if mode & 2 else 2
        for each in (graphed, plain):
            if mode & 4:
                each.cfg.beta, each.group["lr"] = 0.9 + number * 0.01, 0.1 / (number + 1)
            if number % 5 == 4:
                each.program.lr, each.numbers[0] = 0.3 + number, number * 1.0
                each.set_cell(number)
        seen: list[Any] = []
        for function, state in ((run, graphed), (plain.program.run, plain)):
            with torch.set_grad_enabled(grad):
                try:
                    result = bits(function(x.clone(), y.clone(), xi.clone(), s, t, k=k))
                except Exception as error:
                    result = type(error).__name__, str(error)
            seen.append((result, bits(state)))
        if seen[0] != seen[1]:
            return 0, f"seed {seed}, call {number}:\n{text}\n{seen[0]}\n{seen[1]}\n{run.explain()}"
    return run.report().replayed, ""
