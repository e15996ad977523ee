"""What a caller does between two calls, and the calls themselves, as lines of a scene.

``w`` is the :class:`~tests.fuzz.world.World`, ``m`` the module, ``g`` the callable under test, ``h`` a second
one, ``x`` and ``y`` inputs that stay, ``base`` memory that inputs overlap in, ``out`` the last result, and
``$n`` a small number. ``k`` is the callable behind a nested argument.
"""

from __future__ import annotations

from typing import NamedTuple


class Move(NamedTuple):
    """Lines of a scene, how often they are drawn, and attributes the module must have."""

    text: str
    weight: int = 1
    needs: tuple[str, ...] = ()


CALLS = [
    Move("out = w.call(g, x, y)", 24),
    Move("for n in range(5):\n    out = w.call(g, w.tensor(n % 3), y)", 14),
    Move("out = w.call(g, w.tensor($n), w.tensor(1))", 8),
    Move("out = w.call(g, y, x, flag=$n % 2)", 3),
    Move("out = w.call(g, y=x, x=y)", 1),
    Move("for _ in range(4):\n    out = w.call(g, x, x)", 3),
    Move("for n in range(4):\n    out = w.call(g, base[:5], base[4 * ($n % 2) : 4 * ($n % 2) + 5])", 4),
    Move("for _ in range(4):\n    out = w.call(g, w.tensor($n, 2), w.tensor(1, 2))", 3),
    Move("out = w.call(g, w.tensor($n, 5), w.tensor(1, 5))", 1),
    Move("for _ in range(4):\n    out = w.call(g, w.turned($n), y)", 2),
    Move("out = w.call(g, w.wide($n), y)", 1),
    Move("out = w.call(g, x.double(), y)", 1),
    Move("for _ in range(4):\n    out = w.call(g, w.fit(out), y)", 6),
    Move("out = w.call(h, w.fit(out))", 6),
    Move("for n in range(4):\n    out = w.call(h, w.fit(w.call(g, w.tensor(n % 2), y)))", 5),
    Move("for _ in range(4):\n    out = w.in_thread(g, x, y)", 3),
    Move("for _ in range(4):\n    out = w.call(g, w.leaf($n), y)", 2),
    Move("for n in range(4):\n    out = w.call(k, {'x': w.tensor(n % 2), 'y': [y]})", 3),
    Move("for _ in range(4):\n    out = w.call(h, x)", 1),
    Move("for _ in range(4):\n    out = w.call(h, m.lin.weight)", 1, ("lin",)),
    Move("for _ in range(4):\n    out = w.call(g, m.big[4 * ($n % 2) :][:3], y)", 2, ("big",)),
    Move("for _ in range(4):\n    out = w.call(g, x, m.w.expand(3, 4))", 1, ("w",)),
]
RESULTS = [
    Move("w.hold(out)", 12),
    Move("out = None", 2),
    Move("w.drop()", 2),
    Move("w.write(out)", 3),
    Move("gc.collect()", 1),
]
INPUTS = [
    Move("x.mul_(0.5)", 4),
    Move("x[0] = $n", 2),
    Move("x.copy_(w.tensor($n))", 3),
    Move("x = w.tensor($n)", 3),
    Move("x, y = y, x", 1),
    Move("base.add_($n)", 1),
]
MODES = [
    Move("w.mode = torch.no_grad", 2),
    Move("w.mode = torch.enable_grad", 2),
    Move("w.mode = torch.inference_mode", 1),
    Move("w.cast = True", 1),
    Move("w.cast = False", 1),
    Move("torch.manual_seed($n)", 3),
    Move("m.gen.manual_seed($n)", 1, ("gen",)),
    Move("m.train($n % 2 == 0)", 3),
]
STATE = [
    Move("m.scale = $n", 2, ("scale",)),
    Move("m.mode = 'ab'[$n % 2]", 2, ("mode",)),
    Move("m.shift = $n", 4, ("shift",)),
    Move("m.note = $n", 2),
    Move("for n in range(5):\n    m.note = n\n    out = w.call(g, w.tensor(n % 3), y)", 6),
    Move("for n in range(4):\n    m.trail = [n, *vars(m).get('trail', [])]\n    out = w.call(g, x, y)", 4),
    Move("m.fail = True\nout = w.call(g, x, y)\nm.fail = False", 4, ("fail",)),
    Move("m.table['k'] = $n", 1, ("table",)),
    Move("LEVEL = $n", 1),
    Move("m.buf.fill_($n)", 2, ("buf",)),
    Move("m.buf = w.row($n)", 2, ("buf",)),
    Move("m.ema = m.ready = None", 1, ("ema", "ready")),
    Move("m.lin.weight.data = w.square($n)", 2, ("lin",)),
    Move("m.lin.weight.data.mul_(0.5)", 2, ("lin",)),
    Move("m.lin.weight = nn.Parameter(w.square($n))", 2, ("lin",)),
    Move("m.lin.bias.requires_grad_($n % 2 == 0)", 1, ("lin",)),
    Move("m.lin = nn.Linear(4, 4).to(w.device)", 1, ("lin",)),
    Move("m.lin.register_forward_hook(lambda _, args, out: out * 2)", 1, ("lin",)),
    Move("with torch.no_grad():\n    m.w.add_(0.1)", 2, ("w",)),
    Move("saved = w.saved(m)", 2),
    Move("m.load_state_dict(saved)", 2),
    Move("m.load_state_dict(w.copy(saved), assign=True)", 1),
    Move("m.lin.bias = None", 1, ("lin",)),
    Move("m.lin.double()", 1, ("lin",)),  # not all: CUDA's batch norm takes its statistics for floats
    Move("m.float()", 1),
    Move("m.array += 1", 2, ("array",)),
    Move("w.reset(g)", 1),
    Move("g = w.wrap(m)", 1),
]
UPSETS = [
    Move("w.upset(g, upset.evict)", 3),
    Move(
        "w.upset(g, upset.contest, $n % 2 == 1)\nfor n in range(8):\n    out = w.call(g, w.tensor(n % 2), y)",
        3,
    ),
    Move(
        "for n in range(7):\n    if n % 2 == 0: w.upset(g, upset.optimise)\n"
        "    out = w.call(g, w.tensor(n % 2), y)",
        4,
    ),
    Move("for n in range(10):\n    out = w.call(g, w.tensor(n + 9), y)\nw.upset(g, upset.wake)", 3),
    Move("w.upset(g, upset.wake)", 2),
]
GRADIENTS = [
    Move("w.backward(out)", 10),
    Move("for n in range(4):\n    out = w.call(g, w.tensor(n % 3), y)\n    w.backward(out)", 10),
    Move("for n in range(5):\n    w.train(m, g, w.tensor(n % 3), y)", 10),
    Move("w.backward(out, retain_graph=True)", 2),
    Move("outs = [w.call(g, w.tensor(n), y) for n in range(3)]\nfor each in outs:\n    w.backward(each)", 4),
    Move("for _ in range(3):\n    out = w.call(g, w.fit(w.call(g, x, y)), y)\n    w.backward(out)", 4),
    Move("for n in range(5):\n    out = w.call(g, w.leaf(n % 2), y)\n    w.backward(out)", 4),
    Move("for n in range(4):\n    w.backward(w.call(h, w.fit(w.call(g, x, y))))", 4),
    Move("w.partial(out, m)", 2),
    Move(
        "for n in range(12):\n    if n == 4: w.upset(g, upset.contest, $n % 2 == 1)\n"
        "    out = w.call(g, w.tensor(n % 2), y)\n    w.backward(out)",
        4,
    ),
    Move(
        "for n in range(6):\n    if n == 3: w.upset(g, upset.contest, $n % 2 == 1)\n"
        "    for _ in range(2):\n        out = w.call(g, w.fit(w.call(g, x, y)), y)\n        w.backward(out)",
        2,
    ),
]
TRAINING = [
    Move("m.opt.step()", 3),
    Move("m.zero_grad()", 3),
    Move("m.zero_grad(set_to_none=False)", 3),
    Move("w.hold([p.grad for p in m.parameters()])", 2),
    Move("m.opt.param_groups[0]['lr'] = 0.01 * ($n + 1)", 2),
    Move("m.lin.weight.grad = torch.ones_like(m.lin.weight)", 1, ("lin",)),
    Move("m.lin.weight.grad = None", 1, ("lin",)),
    Move("m.opt.load_state_dict(copy.deepcopy(m.opt.state_dict()))", 1),
]


def moves(attributes: frozenset[str], kind: str) -> list[str]:
    """The moves that make sense for a module and a kind of scene, each as often as it is to be drawn."""
    found = [*CALLS, *RESULTS, *INPUTS, *MODES, *STATE, *UPSETS]
    found += GRADIENTS if kind == "outside" else []
    found += TRAINING if kind in ("outside", "step") else []
    return [move.text for move in found if attributes.issuperset(move.needs) for _ in range(move.weight)]
