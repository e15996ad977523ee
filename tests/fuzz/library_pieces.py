"""More pieces of Python state, as in :mod:`.pieces`: what libraries and the language keep, ways to read."""

from __future__ import annotations

from .piece import Piece

ARRAY = Piece(
    "array that becomes a tensor",
    "numpy.ones(4, numpy.float32)",
    reads=(
        "float($s[0])", "torch.from_numpy($s).sum().item()", "float($s.sum())", "len($s)", "$s.shape[0]",
        "float(torch.from_numpy($s)[0]) + float($s[1])", "float($s.T[0])", "float($s.max())",
        "len($s[$s > 1])", "int($s.any())", "float(sum($s))", "float(numpy.add($s, 1)[0])",
        "float(next(iter($s)))", "$s.tolist()[1]", "float(torch.tensor($s)[0])",
    ),
    moves=("$s[0] = $n", "$s[:] = $n", "$s *= 2", "$s = numpy.full(4, $n, numpy.float32)", "$s = $s.copy()"),
    watch="$s.tolist()",
    writes=("torch.from_numpy($s).add_(1)", "$s[0] += 1", "torch.from_numpy($s).mul_(1)"),
)  # fmt: skip
INDICES = Piece(
    "indices of tensors",
    "[0, 1]",
    reads=(
        "float($a.detach()[$s].numel())", "float(torch.arange(8.0)[$s].sum())", "len(torch.arange(8.0)[$s])",
        "float(torch.arange(8.0)[$s[0]])", "float(torch.arange(8.0)[slice(*$s)].numel())",
        "float(torch.ones(2, 3).permute($s).shape[0])", "float(torch.zeros($s).numel())",
        "float(torch.arange(16.0).view(4, 4)[$s, $s].sum())", "float(torch.ones(2, 2).sum($s))",
        "float(F.pad(torch.ones(3), $s).sum())", "float(torch.tensor($s).sum())",
    ),
    moves=("$s[:] = [1, 0]", "$s[:] = [0, 1]", "$s = [1, 0]", "$s.reverse()", "$s = [0, 1]"),
    watch="list($s)",
    writes=("$s.reverse()", "$s[0] = 0"),
)  # fmt: skip
SET_ORDER = Piece(
    "order of a set",
    "$kind((8, 16))",
    setup="$kind = frozenset",
    reads=(
        "next(iter($s))", "list($s)[0]", "[v for v in $s][-1]", "max($s, key=lambda v: 0)",
        "str($s).index('8')",
        "sum($s)", "len($s)", "8 in $s", "tuple(sorted($s))[0]", "next(v for v in $s)", "list($s | {1})[0]",
        "hash($s) % 3", "dict.fromkeys($s, 1).popitem()[0]",
    ),
    moves=(
        "$s = $kind((16, 8))", "$s = $kind((8, 16))", "$s = $kind(($n, 8))", "$s = {16, 8}", "$s = {8, 16}",
    ),
    watch="list($s)",
)  # fmt: skip
SORTED = Piece(
    "keys of sorting",
    "[3, 1, 2]",
    setup="${kind}Rank = {1: 1, 2: 2, 3: 3}\n\ndef $kind(v):\n    return ${kind}Rank.get(v, 0)",
    reads=(
        "sorted($s, key=$kind)[0]", "max($s, key=$kind)", "min($s, key=$kind, default=0)",
        "sum(map($kind, $s))", "len(list(filter($kind, $s)))", "sorted($s, key=${kind}Rank.get)[0]",
        "next(zip($s, map($kind, $s)))[1]", "sum($kind(v) for v in $s)", "sum([*map($kind, $s)])",
        "functools.reduce(lambda a, b: a + $kind(b), $s, 0)", "any($kind(v) > 2 for v in $s)",
        "all(map($kind, $s))", "list(itertools.accumulate($s, lambda a, b: a + $kind(b)))[-1]",
        "len(list(itertools.takewhile($kind, $s)))",
        "sorted($s, key=functools.cmp_to_key(lambda a, b: $kind(a) - $kind(b)))[0]",
        "dict(zip($s, map($kind, $s)))[1]", "{v: $kind(v) for v in $s}[2]",
        "(lambda first, *rest: first)(*$s)",
        "[first, *rest][0] if (first := $s[0]) and (rest := $s[1:]) else 0",
    ),
    moves=("${kind}Rank[$n] = 9", "${kind}Rank[1] = $n", "$s.append($n)", "$s.sort()", "${kind}Rank.clear()"),
    watch="[list($s), dict(${kind}Rank)]",
    writes=("$s.sort(key=$kind)", "${kind}Rank[1] = 0", "$s.reverse()"),
)  # fmt: skip
CALENDAR = Piece(
    "numbers and dates",
    "types.SimpleNamespace(d=decimal.Decimal('1.5'), f=fractions.Fraction(1, 3), "
    "t=datetime.datetime(2020, 1, 2), p=pathlib.PurePath('a/b.c'), c=complex(1, 2), n=numpy.float32(2))",
    reads=(
        "float($s.d)", "float($s.d * 2)", "float($s.f)", "$s.f.numerator", "$s.t.day", "$s.t.year % 7",
        "($s.t - datetime.datetime(2020, 1, 1)).days", "len($s.p.name)", "len($s.p.parts)", "$s.c.real",
        "abs($s.c)", "float($s.n)", "float($s.n + 1)", "$s.p.suffix == '.c'", "int($s.d == 1.5)",
        "len(str($s.f))", "len(f'''{$s.d}''')", "round($s.f)", "$s.t.isoformat() > '2020'",
        "divmod($s.d, 1)[0] == 1",
    ),
    moves=(
        "$s.d = decimal.Decimal('$n.25')", "$s.f = fractions.Fraction($n, 7)", "$s.p = $s.p / ('x' * $n)",
        "$s.t = $s.t + datetime.timedelta(days=$n)", "$s.c = complex($n, 0)", "$s.n = numpy.float32($n)",
        "$s.d = decimal.Decimal('1.5')", "$s.f = fractions.Fraction(1, 3)", "$s.n = numpy.int64(2)",
    ),
    watch="str(vars($s))",
    writes=("$s.d += 1", "$s.t = $s.t.replace(day=1 + $n)"),
)  # fmt: skip
FORMATS = Piece(
    "texts and formats",
    "types.SimpleNamespace(k=1, name='ab', fmt='{0.k}-{0.name}', width=3)",
    setup="""\
class $kind:
    def __init__(self, k): self.k = k
    def __format__(self, spec): return '#' * self.k + spec
    def __str__(self): return 's' * self.k
    def __repr__(self): return '%' * self.k
${kind}One = $kind(2)""",
    reads=(
        "len(f'''{$s.k}''')", "len(f'''{$s.name!r}''')", "len(f'''{$s.k:{$s.width}}''')",
        "len($s.fmt.format($s))",
        "len('%s %d' % ($s.name, $s.k))", "len(str(${kind}One))", "len(f'''{${kind}One}''')",
        "len(f'''{${kind}One!s}''')",
        "len('%s' % ${kind}One)", "len('%r' % [${kind}One])", "len(repr($s))",
        "len('{name}'.format(**vars($s)))",
        "len('{k:>4}'.format_map(vars($s)))", "len(f'''{[${kind}One]}''')", "len(str({1: ${kind}One}))",
        "len(json.dumps(vars($s)))", "len(ascii(${kind}One))",
        "len(format(${kind}One, 'x'))", "len('-'.join([$s.name] * $s.k))", "$s.name.count('a')",
    ),
    moves=(
        "$s.k = $n", "$s.name = 'x' * $n", "$s.fmt = '{0.name}'", "$s.width = 5", "${kind}One.k = $n",
        "$kind.__str__ = lambda self: 's' * $n", "$kind.__format__ = lambda self, spec: 'f' * $n",
        "$kind.__repr__ = lambda self: 'r' * $n", "$s.fmt = '{0.k}'",
    ),
    watch="[vars($s), ${kind}One.k]",
    writes=("$s.k += 1", "${kind}One.k = $n", "$s.name += 'a'"),
)  # fmt: skip
MATCHED = Piece(
    "matched values",
    "{'kind': 'a', 'at': [1, 2], 'more': None}",
    setup="""\
class $kind:
    __match_args__ = ('k',)
    def __init__(self, k): self.k = k

def ${kind}Match(value):
    match value:
        case {'kind': 'a', 'at': [first, *rest]}: return first + len(rest)
        case {'kind': str(name)}: return len(name)
        case $kind(3): return 30
        case $kind(k): return k
        case [a, b]: return a + b
        case int() | float(): return value
        case None: return 9
    return 7""",
    reads=(
        "${kind}Match($s)", "${kind}Match($s.get('at'))", "${kind}Match($s.get('more'))",
        "${kind}Match($kind($s['at'][0]))", "${kind}Match($s['at'][0])",
    ),
    moves=(
        "$s['kind'] = 'bcd'", "$s['kind'] = 'a'", "$s['at'] = [$n]", "$s['at'].append($n)", "$s['more'] = $n",
        "$s['at'][0] = 3", "$kind.__match_args__ = ()", "$s['more'] = $kind($n)",
        "$kind.__match_args__ = ('k',)",
        "$s['kind'] = 5",
    ),
    watch="str([$s['kind'], $s['at']])",
    writes=("$s['at'].append(1)", "$s['kind'] = 'a'"),
)  # fmt: skip
ERRORS = Piece(
    "exceptions",
    "ValueError('a', 1)",
    setup="""\
class $kind(KeyError):
    code = 2

def ${kind}Try(error, caught=None):
    try:
        raise error
    except (caught or ${kind}Caught[0]) as found:
        return len(found.args) + getattr(found, 'code', 0)
    except Exception as found:
        return 5
${kind}Caught = [ValueError]""",
    reads=(
        "len($s.args)", "$s.args[-1]", "len(str($s))", "${kind}Try($s)", "${kind}Try($kind('x'))",
        "isinstance($s, ValueError)", "getattr($s, 'code', 3)", "len(getattr($s, '__notes__', ()))",
        "$s.__cause__ is None",
    ),
    moves=(
        "$s.args = ('b',) * $n + (2,)", "${kind}Caught[0] = KeyError", "$kind.code = $n",
        "$s = $kind('z', 3)",
        "$s.code = $n", "$s.add_note('n')", "$s.__cause__ = KeyError()", "${kind}Caught[0] = ValueError",
    ),
    watch="[str($s.args), $kind.code]",
    writes=("$s.code = $n", "$s.args += (1,)"),
)  # fmt: skip
MANAGERS = Piece(
    "contexts",
    "types.SimpleNamespace(stack=[1], depth=0)",
    setup="""\
@contextlib.contextmanager
def $kind(state, value=1):
    state.stack.append(value)
    try:
        yield state.stack[-1] + ${kind}Gain[0]
    finally:
        state.stack.pop()

def ${kind}With(state):
    with $kind(state, 3) as found:
        return found + len(state.stack)

def ${kind}Stack(state):
    with contextlib.ExitStack() as stack:
        return sum([stack.enter_context($kind(state, n)) for n in range(2)])
${kind}Gain = [0]""",
    reads=(
        "${kind}With($s)", "${kind}Stack($s)", "$s.stack[-1]", "len($s.stack)",
        "$s.depth + ${kind}With($s)",
    ),
    moves=("${kind}Gain[0] = $n", "$s.stack.append($n)", "$s.depth = $n", "$s.stack = [$n]"),
    watch="[list($s.stack), $s.depth]",
    writes=("${kind}With($s)", "$s.depth += 1"),
)  # fmt: skip
COPIES = Piece(
    "copies and pickles",
    "types.SimpleNamespace(d={'k': [1, 2]}, n=1)",
    setup="""\
class $kind:
    def __init__(self): self.k = 2
    def __copy__(self):
        made = type(self)()
        made.k = self.k + ${kind}More[0]
        return made
${kind}More = [1]
${kind}One = $kind()""",
    reads=(
        "copy.copy($s).n", "copy.deepcopy($s).d['k'][0]", "copy.copy($s.d)['k'][-1]",
        "copy.copy(${kind}One).k",
        "copy.deepcopy($s.d)['k'][0] + $s.n", "vars(copy.copy($s))['n']", "len($s.d['k'].copy())",
        "dict($s.d)['k'][0]", "list($s.d['k'])[0]", "len({**$s.d})", "($s.d | {'z': 1})['k'][0]",
        "len(json.loads(json.dumps($s.d))['k'])", "copy.deepcopy(${kind}One).k", "[*$s.d['k'], $s.n][-1]",
        "$s.d['k'] == [1, 2]", "($s.d, $s.n) == ({'k': [1, 2]}, 1)",
        "$s == types.SimpleNamespace(d={'k': [1, 2]}, n=1)",
    ),
    moves=(
        "$s.n = $n", "$s.d['k'][0] = $n", "$s.d['k'].append($n)", "${kind}More[0] = $n", "${kind}One.k = $n",
        "$s.d = copy.deepcopy($s.d)", "$s = copy.copy($s)", "$kind.__deepcopy__ = lambda self, memo: self",
    ),
    watch="[str($s.d), $s.n, ${kind}One.k]",
    writes=("$s.d['k'].append(1)", "$s.n = copy.copy($s).n + 1"),
)  # fmt: skip
CODE = Piece(
    "code of functions",
    "$kind",
    setup="""\
def ${kind}Wrap(function):
    @functools.wraps(function)
    def around(*args, **kwargs):
        return function(*args, **kwargs) + ${kind}Around[0]
    return around

def ${kind}Inner(n):
    return n + 1

def ${kind}Later(n):
    return n * 3

$kind = ${kind}Wrap(${kind}Inner)
${kind}Around = [0]""",
    reads=(
        "$s(1)", "$s.__wrapped__(2)", "${kind}Inner(1)", "len($s.__code__.co_varnames)",
        "$s.__wrapped__.__code__.co_argcount",
        "list(map($s, [1, 2]))[-1]", "functools.partial($s, 1)()", "sorted([2, 1], key=$s)[0]",
        "len($s.__qualname__)",
        "inspect.unwrap($s)(1)",
    ),
    moves=(
        "${kind}Around[0] = $n", "${kind}Inner.__code__ = ${kind}Later.__code__",
        "$s.__wrapped__ = ${kind}Later",
        "${kind}Inner.__code__ = (lambda n: n + $n).__code__", "$s = ${kind}Wrap(${kind}Later)",
        "$s = ${kind}Later",
        "${kind}Inner = ${kind}Later",
    ),
    watch="${kind}Around[0]",
    writes=("${kind}Around[0] = $n",),
)  # fmt: skip
COMPUTED = Piece(
    "cached properties and generics",
    "$kind()",
    setup="""\
class $kind:
    def __init__(self): self.k = 1
    @functools.cached_property
    def once(self): return self.k + 1
    @functools.singledispatchmethod
    def gain(self, value): return 1
    @gain.register
    def _(self, value: int): return 2 + self.k
    part = functools.partialmethod(gain, 3)
    def __class_getitem__(cls, item): return item
    def __init_subclass__(cls): cls.marked = 3
    def __getattr__(self, name): return ${kind}Else[0]
    def __dir__(self): return ['k'] * self.k
${kind}Else = [4]""",
    reads=(
        "$s.once", "$s.gain(1)", "$s.gain('a')", "$s.part()", "$kind[$n]", "$s.other",
        "getattr($s, 'any' + 'thing')",
        "len(dir($s))", "hasattr($s, 'x')", "'once' in vars($s)", "type('Sub', ($kind,), {}).marked",
    ),
    moves=(
        "$s.k = $n", "vars($s).pop('once', None)", "${kind}Else[0] = $n", "$s = $kind()", "$s.other = $n",
        "$kind.gain.register(str, lambda self, value: $n)", "del $kind.__getattr__", "$s.once = $n",
    ),
    watch="sorted(vars($s).items())",
    writes=("$s.k += 1", "vars($s).pop('once', None)", "$s.once"),
)  # fmt: skip
PROCESS = Piece(
    "process and filters",
    "['a']",
    setup="""\
sys.modules.pop('rote_fuzz_module', None)
torch.set_warn_always(False)
torch.set_autocast_dtype('cpu', torch.bfloat16)
torch.set_autocast_cache_enabled(True)
logging.disable(logging.NOTSET)
warnings.resetwarnings()
warnings.simplefilter('ignore')
$kind = logging.getLogger('rote-fuzz')
$kind.setLevel(logging.WARNING)
$kind.handlers.clear()
$kind.disabled = False
${kind}Old = sys.argv[:]
sys.argv[:] = ['x']""",
    reads=(
        "len(sys.argv)", "len(sys.argv[-1])", "torch.is_warn_always_enabled()", "len(warnings.filters)",
        "$kind.level", "$kind.isEnabledFor(20)", "$kind.getEffectiveLevel()", "len($kind.handlers)",
        "sys.getrecursionlimit() % 7", "'rote_fuzz_module' in sys.modules", "len($s)",
        "int(torch.get_default_dtype() == torch.float32)",
        "int(torch.get_autocast_dtype('cpu') == torch.float16)",
        "int(torch.backends.mkldnn.enabled)", "int(torch.is_autocast_cache_enabled())",
    ),
    moves=(
        "sys.argv.append('y' * $n)", "torch.set_warn_always($n % 2 == 0)", "$kind.setLevel(10 * $n)",
        "warnings.filterwarnings('ignore', message='$n')", "$kind.addHandler(logging.NullHandler())",
        "sys.modules['rote_fuzz_module'] = None", "sys.modules.pop('rote_fuzz_module', None)",
        "$s.append('b')",
        "logging.disable(logging.CRITICAL)", "logging.disable(logging.NOTSET)",
        "$kind.disabled = $n % 2 == 0",
        "torch.set_autocast_dtype('cpu', torch.float16 if $n % 2 else torch.bfloat16)",
        "torch.set_autocast_cache_enabled($n % 2 == 0)",
    ),
    watch="len($s)",
    writes=("$s.append('c')", "$kind.setLevel(20)"),
)  # fmt: skip
LAYERS = Piece(
    "modules, buffers and hooks",
    "$kind().to(w.device)",
    setup="""\
class $kind(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.names = 1, ['a']
        self.register_buffer('b', torch.ones(4))
        self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.table = nn.ModuleDict({'a': nn.Identity()})
        self.values = nn.ParameterList([nn.Parameter(torch.ones(2), requires_grad=False)])
    def forward(self, v): return self.table['a'](v) + self.k""",
    reads=(
        "$s.k", "len($s.layers)", "len(list($s.buffers()))", "$s.training + 1", "len($s.state_dict())",
        "len(list($s.modules()))", "'c' in dict($s.named_buffers())", "len($s.table)",
        "type($s.layers[0]) is nn.ReLU",
        "float($s(torch.ones(2))[0])", "len($s._forward_hooks)", "sum(p.numel() for p in $s.parameters())",
        "len($s.values)", "$s.layers[-1].training + 1", "len(str($s))", "len($s._buffers)",
        "$s.extra_repr() == ''",
        "len($s.get_extra_state()) if hasattr(type($s), 'get_extra_state') and 0 else 1", "float($s.b.sum())",
    ),
    moves=(
        "$s.k = $n", "$s.train($n % 2 == 0)", "$s.register_buffer('c', torch.ones(2))",
        "$s.layers.append(nn.ReLU())",
        "$s.table['b'] = nn.Identity()", "$s.register_forward_hook(lambda m, i, o: o * 2)",
        "$s.register_forward_pre_hook(lambda m, i: (i[0] * 2,))", "$s.layers[0] = nn.Tanh()", "$s.b.mul_(2)",
        "$s.layers[-1].train($n % 2 == 0)",
        "$s.values.append(nn.Parameter(torch.ones(3), requires_grad=False))",
        "$s.table['a'] = nn.ReLU()", "$s._forward_hooks.clear()", "$s.requires_grad_(False)",
        "$s.register_buffer('b', torch.full((4,), $n.0), persistent=False)",
        "$s.layers = nn.ModuleList([nn.ReLU()])",
    ),
    watch="[$s.k, $s.training, len($s.layers), len($s._buffers)]",
    writes=("$s.k += 1", "$s.b.add_(1)", "$s.eval()", "$s.last = $n"),
)  # fmt: skip
LEARNING = Piece(
    "optimizers and schedulers",
    "torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.5, momentum=0.5)",
    setup="$kind = []",
    reads=(
        "$s.param_groups[0]['lr']", "len($s.param_groups)", "len($s.state)", "$s.defaults['lr']",
        "len($s.state_dict()['state'])", "sum(g['momentum'] for g in $s.param_groups)",
        "len($s.param_groups[0]['params'])",
        "$s.param_groups[0].get('initial_lr', 2)", "len(${kind})", "len(repr($s)) % 3",
        "sum(s.last_epoch + 1 for s in ${kind})", "sum(s.get_last_lr()[0] for s in ${kind})",
    ),
    moves=(
        "$s.param_groups[0]['lr'] = $n", "$s.add_param_group({'params': [nn.Parameter(torch.ones(1))]})",
        "$s.param_groups[0]['momentum'] = 0.25", "${kind}.append(torch.optim.lr_scheduler.StepLR($s, 1))",
        "$s.defaults['lr'] = $n", "$s.step()", "[s.step() for s in ${kind}]",
        "$s.load_state_dict($s.state_dict())",
        "$s.param_groups[0]['params'][0].grad = torch.ones(2)\n$s.step()",
    ),
    watch="[$s.param_groups[0]['lr'], len($s.state)]",
    writes=("$s.param_groups[0]['lr'] *= 0.5", "$s.param_groups[0]['lr'] = 0.5"),
)  # fmt: skip
OPERATOR = Piece(
    "functions with a backward",
    "$kind",
    setup="""\
class $kind(torch.autograd.Function):
    scale = 2.0
    @staticmethod
    def forward(ctx, v):
        ctx.scale = $kind.scale + ${kind}State['k']
        return v * ctx.scale
    @staticmethod
    def backward(ctx, grad): return grad * ctx.scale
${kind}State = {'k': 1.0}""",
    reads=(
        "float($s.apply(torch.ones(1)).sum())", "$s.scale", "${kind}State['k']",
        "float(torch.autograd.grad($s.apply(q := torch.ones(1, requires_grad=True)).sum(), q)[0])",
    ),
    moves=("$kind.scale = $n", "${kind}State['k'] = $n.5", "$kind.scale = 2.0", "${kind}State['k'] = 1.0"),
    watch="[$kind.scale, ${kind}State['k']]",
    writes=("$kind.scale = 1.5", "${kind}State['k'] += 1"),
)  # fmt: skip
USERS = Piece(
    "subclasses of containers",
    "$kind([1, 2, 3])",
    setup="""\
class $kind(list):
    k = 1
    def total(self): return sum(self) + self.k
    def __getitem__(self, index): return super().__getitem__(index) + self.k

class ${kind}Dict(dict):
    def __missing__(self, key): return ${kind}Default[0]
    def get(self, key, default=None): return 6
class ${kind}User(collections.UserList): pass
${kind}Default = [2]
${kind}D, ${kind}U = ${kind}Dict(a=1), ${kind}User([1, 2])""",
    reads=(
        "$s[0]", "$s.total()", "sum($s)", "len($s)", "list($s)[0]", "[*$s][-1]", "$s[-1]", "${kind}D['z']",
        "${kind}D['a']", "${kind}D.get('a')", "dict(${kind}D)['a']", "${kind}U[0]", "sum(${kind}U)",
        "len(${kind}U)",
        "3 in $s", "max($s)", "$s == [1, 2, 3]", "sum(v for v in ${kind}U)", "$s.index(2)",
        "reversed($s).__next__()",
        "${kind}U == [1, 2]", "len(${kind}U + [1])", "{**${kind}D}['a']", "len(${kind}D | {'b': 1})",
    ),
    moves=(
        "$s.append($n)", "$s.k = $n", "$kind.k = $n", "${kind}Default[0] = $n", "${kind}D['z'] = $n",
        "${kind}D['a'] = $n",
        "${kind}U.append($n)", "${kind}U.data = [$n]", "$kind.__len__ = lambda self: $n", "$s[:] = [$n]",
        "$kind.__iter__ = lambda self: iter([$n])", "$s = list($s)\n$s = $kind($s)",
    ),
    watch="[list.__len__($s), dict(${kind}D), list(${kind}U)]",
    writes=("$s.append(1)", "${kind}D['b'] = 1", "${kind}U.data[0] = $n", "$s.k = 2"),
)  # fmt: skip
QUEUES = Piece(
    "heaps and views",
    "[3, 5, 9]",
    setup="""\
${kind}D = {'a': 1, 'b': 2}
${kind}V = ${kind}D.values()
${kind}K = ${kind}D.keys()
${kind}P = types.MappingProxyType(${kind}D)""",
    reads=(
        "$s[0]", "heapq.nsmallest(1, $s)[0]", "bisect.bisect($s, 4)", "heapq.nlargest(1, $s)[0]",
        "sum(${kind}V)",
        "len(${kind}K)", "'c' in ${kind}K", "${kind}P['a']", "len(${kind}P)", "sum(${kind}P.values())",
        "list(${kind}K)[0] == 'a'",
        "len(${kind}K & {'a'})", "${kind}P.get('c', 7)", "sum(memoryview(bytes($s)))", "bytes($s)[0]",
        "sum(range(*$s[:2]))",
        "len(slice($s[0]).indices(9))", "[*reversed($s)][0]", "len($s[:2])", "$s[-1]",
        "sum($s[i] for i in range(len($s)))",
    ),
    moves=(
        "heapq.heappush($s, $n)", "heapq.heappop($s)\n$s.append(7)", "${kind}D['c'] = $n",
        "${kind}D['a'] = $n",
        "${kind}D.pop('b', None)", "bisect.insort($s, 4)", "$s[0] = $n", "${kind}V = {'z': $n}.values()",
        "${kind}D['a'] = ${kind}D.pop('a', 1)",
    ),
    watch="[list($s), dict(${kind}D)]",
    writes=("heapq.heappush($s, 4)", "heapq.heappushpop($s, 1)", "${kind}D['d'] = 1"),
)  # fmt: skip
LIBRARY_PIECES = [
    ARRAY, INDICES, SET_ORDER, SORTED, CALENDAR, FORMATS, MATCHED, ERRORS, MANAGERS, COPIES, CODE, COMPUTED,
    PROCESS, LAYERS, LEARNING, OPERATOR, USERS, QUEUES,
]  # fmt: skip
