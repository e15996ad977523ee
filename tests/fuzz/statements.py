"""What a random ``forward`` is made of: statements over values of shape ``(rows, 4)``, and what they need.

An attribute that a statement reads without naming it stands in a comment, so that it is made.

In a statement ``$v`` is the variable it makes, ``$a`` and ``$b`` are values made before it, and ``$n`` is a
small number.
"""

from __future__ import annotations

from typing import NamedTuple

ATTRIBUTES: dict[str, str] = {
    "lin": "nn.Linear(4, 4)",
    "norm": "nn.BatchNorm1d(4)",
    "drop": "nn.Dropout(0.3)",
    "w": "nn.Parameter(torch.randn(4))",
    "scale": "1.5",
    "count": "0",
    "shift": "1.5",
    "mode": '"a"',
    "fail": "False",
    "ready": "None",
    "mean": "None",
    "calls": "[]",
    "table": '{"k": 2.0}',
    "gen": "None",
    "ema": "None",
    "inner": "None",
    "array": "numpy.ones(4, numpy.float32)",
}
"""How ``__init__`` makes an attribute that statements mention."""

BUFFERS: dict[str, str] = {
    "buf": "torch.zeros(4)",
    "big": "torch.zeros(8, 4)",
    "pos": "torch.zeros(1, dtype=torch.long)",
}


class Statement(NamedTuple):
    """One statement: its text, and how often it is drawn."""

    text: str
    weight: int = 2


PURE = [
    Statement("$v = $a + $b * $n", 6),
    Statement("$v = $a * $b", 4),
    Statement("$v = $a / ($b.abs() + 1 + $n)"),
    Statement("$v = ($a @ $b.t() @ $a).clamp(-50, 50)"),
    Statement("$v = torch.where($a > $n - 2, $a, $b)"),
    Statement("$v = $a.sin() + $b.tanh()"),
    Statement("$v = F.gelu($a)"),
    Statement("$v = F.softmax($a, -1)"),
    Statement("$v = F.layer_norm($a, (4,))"),
    Statement("$v = torch.cat([$a[:1], $b])[: $a.shape[0]]"),
    Statement("$v = $a.sort(-1, descending=$n % 2 == 0)[0]"),
    Statement("$v = $a - $a.mean($n % 2, keepdim=True) + $b.amax()"),
    Statement("$v = ($a.double() + $n).float() + $b.to(torch.int32)"),
    Statement("$v = $a + torch.tensor([$n.0, 1.0, -1.0, 0.5], device=$a.device)"),
    Statement("$v = torch.full_like($a, $n) + $b"),
    Statement("$v = torch.empty_like($a).copy_($b)"),
    Statement("$v = $a + torch.ones(4).to($a.device) * $n", 1),
    Statement("$v = F.scaled_dot_product_attention($a[None], $b[None], $b[None])[0]", 1),
    Statement("$v = $a.unbind()[0] + torch.stack(list($b))", 1),
    Statement("$v = twice($a)", 1),
    Statement("$v = self.inner($a)"),
    Statement("$v = $a + torch.from_numpy(self.array).to($a.device)", 1),
    Statement("$v = $a + torch.tensor(self.array, device=$a.device)", 1),
]
GRADIENTS = [
    Statement(
        "with torch.autocast($a.device.type, torch.bfloat16):\n    $v = self.lin(self.lin($a)).float()"
    ),
    Statement("with torch.no_grad():\n    $v = self.lin($a) + $b"),
    Statement(
        "with torch.enable_grad():\n"
        "    leaf = $a.detach().clone().requires_grad_()\n"
        "    $v = torch.autograd.grad((leaf * $b.detach()).sin().sum(), leaf)[0]"
    ),
    Statement("$v = checkpoint(lambda v: F.gelu(self.lin(v)), $a, use_reentrant=False)", 1),
    Statement("$v = Doubled.apply($a)", 1),
    Statement("$v = $a * 1\nif $v.requires_grad:\n    $v.register_hook(lambda grad: grad * 2)", 1),
]
VIEWS = [
    Statement("$v = $a.reshape(-1).view($a.shape)"),
    Statement("$v = $a[:]"),
    Statement("$v = $a.t().t()"),
    Statement("$v = $a.detach()"),
    Statement("$v = $a.flip(0)", 1),
    Statement("$v = $a[:1].expand_as($b)", 1),
    Statement("$v = $a", 1),
]
WRITES = [
    Statement("$v = $a.add_($b, alpha=$n)"),
    Statement("$v = $a.mul_(0.5)"),
    Statement("$v = $a.copy_($b)"),
    Statement("$v = $a.zero_()", 1),
    Statement("$v = $a.clone().add_($n)"),
    Statement("$a[0].mul_(0.5)\n$v = $a + $b"),
    Statement("$a[:, 1:3] = $b[:, :2]\n$v = $a"),
    Statement("$a.t()[0].add_(1)\n$v = $b * 2"),
    Statement("$a.diagonal().fill_($n)\n$v = $a"),
    Statement("$v = torch.add($a, $b, out=torch.empty_like($a))", 1),
]
STATE = [
    Statement("$v = self.lin($a)", 8),
    Statement("$v = self.norm($a)"),
    Statement("$v = $a * self.w", 4),
    Statement("$v = $a + self.buf", 3),
    Statement("$v = $a * self.scale", 3),
    Statement("$v = $a * getattr(self, ''.join(['sh', 'ift']))  # self.shift"),
    Statement("$v = $a * vars(self)[''.join(['sh', 'ift'])]  # self.shift", 1),
    Statement("$v = $a * sum(getattr(each, 'tfihs'[::-1]) for each in [self])  # self.shift", 1),
    Statement("$v = $a * operator.attrgetter('tfihs'[::-1])(self) + $n  # self.shift", 1),
    Statement("$v = $a * (self.__dict__['tfihs'[::-1]] if $b.sum() > 0 else 2)  # self.shift", 1),
    Statement("$v = $a * LEVEL + self.table['k']"),
    Statement("self.buf.add_($a.detach().mean(0))\n$v = $a", 4),
    Statement("self.buf.mul_(0.5).add_($n)\n$v = $a - self.buf", 3),
    Statement("self.big[: $a.shape[0]].copy_($a.detach())\n$v = self.big[1 : 1 + $a.shape[0]] + $b", 2),
    Statement(
        "self.big.index_copy_(0, self.pos % 8, $a.detach()[:1])\nself.pos.add_(1)\n$v = $a + self.big.sum(0)"
    ),
    Statement("self.buf = self.buf * 0.5 + $a.detach().mean(0)\n$v = $a", 1),
    Statement("self.ema = $a.detach() if self.ema is None else self.ema[:1] * 0.9 + $a.detach()\n$v = $a", 1),
    Statement("self.count += 1\n$v = $a", 1),
    Statement("self.count += 1\n$v = $a * self.count", 1),
    Statement("self.calls.append($n)\n$v = $a + len(self.calls)", 1),
    Statement("if self.ready is None:\n    self.ready = torch.ones_like($a[:1])\n$v = $a + self.ready"),
    Statement("if self.mean is None:\n    self.mean = $a.mean().item()\n$v = $a - self.mean", 1),
    Statement("with torch.no_grad():\n    self.w.mul_(0.99)\n$v = $a", 1),
    Statement("$v = self.w.expand($a.shape)", 1),
    Statement("$v = self.lin.weight[:1] + $a", 1),
]
BRANCHES = [
    Statement("if $a.sum() > $b.mean():\n    $v = $a + 1\nelse:\n    $v = $b - 1", 4),
    Statement("$v = $a * (round($a.sum().item()) % 2)", 2),
    Statement("$v = $b + $a[$a > $b].sum()"),
    Statement("$v = $b * $a.gt(0).nonzero().shape[0]", 1),
    Statement("$v = $b + torch.tensor($a[0].tolist(), device=$a.device)", 1),
    Statement("$v = $a\nwhile $v.abs().amax() > 4:\n    $v = $v / 2"),
    Statement("$v = $a * 2 if flag else $a", 3),
    Statement("$v = $a + 1 if self.training else $b"),
    Statement("$v = $a + 1 if self.mode == 'a' else $b * 2"),
    Statement("$v = $a\nfor _ in range(flag + 1):\n    $v = $v * 0.5 + $b"),
    Statement("if self.fail:\n    raise BoomError('asked to')\n$v = $a", 3),
    Statement("if $a.sum() > 5:\n    raise BoomError(f'{$a.sum().item()} is too much')\n$v = $a", 1),
    Statement("try:\n    $v = $a @ $b\nexcept RuntimeError:\n    $v = $a", 1),
]
RANDOM = [
    Statement("$v = F.dropout($a, 0.5)", 3),
    Statement("$v = self.drop($a)", 3),
    Statement("$v = $a + torch.rand_like($b)", 2),
    Statement("$v = $a * torch.randint(0, 3, $a.shape, device=$a.device)"),
    Statement("$v = $a + torch.rand($a.shape, generator=self.gen, device=$a.device)"),
    Statement("$v = $a * random.random()", 1),
]

STATEMENTS = [
    statement.text
    for statement in (*PURE, *VIEWS, *WRITES, *STATE, *BRANCHES, *RANDOM, *GRADIENTS)
    for _ in range(statement.weight)
]

RESULTS = [
    "return $a",
    "return $a",
    "return $a, $b",
    "return {'a': $a, 'b': $b[0]}",
    "return Pair($a, [$b, 'text', None])",
    "return $a[1:], $a, $a.sum()",
    "return $a, x",
    "return $a, self.lin.weight",
    "return $a.view(-1), self.lin.bias[1:]",
    "return $a.mean().item()",
    "return $a * 2, flag",
    "return None",
]

STEP = """\
self.opt.zero_grad(set_to_none=$bool)
loss = ($a + self.lin(x)).pow(2).mean()
loss.backward()$clip
self.opt.step()
return loss.detach()"""

OPTIMIZERS = [
    "torch.optim.SGD(m.parameters(), lr=0.1)",
    "torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, foreach=False)",
    "torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)",
    "torch.optim.Adam(m.parameters(), lr=0.1)",
    "torch.optim.Adam(m.parameters(), lr=0.1, capturable=w.device == 'cuda')",
    "torch.optim.AdamW(m.parameters(), lr=0.1, capturable=w.device == 'cuda', foreach=False)",
    "torch.optim.Adam(m.parameters(), lr=0.1, fused=True)",
]
