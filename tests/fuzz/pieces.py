"""Pieces of Python state: how each is made, read and written in a callable, and changed between its calls.

More of them are in :mod:`.library_pieces`.
"""

from __future__ import annotations

from .library_pieces import LIBRARY_PIECES
from .piece import Piece

NUMBER = Piece(
    "number",
    "1",
    reads=("$s", "$s + $n", "$s > 2", "int($s)", "type($s) is int", "isinstance($s, bool)", "$s * 0.5"),
    moves=("$s = $n", "$s = $n.5", "$s = True", "$s = 1.0", "$s = 1", "$s = -0.0"),
    watch="$s",
    writes=("$s = $n", "$s += 1", "$s = $s * 0 + 2"),
)  # fmt: skip
TEXT = Piece(
    "text",
    '"abc"',
    reads=("len($s)", '$s == "abc"', '$s.startswith("a")', '"b" in $s', 'int("x" + $s == "xabc")'),
    moves=('$s = "abc"', '$s = "de"', '$s = "a" * $n', '$s = "".join(["a", "bc"])'),
    watch="$s",
    writes=('$s = "de"', '$s = $s[:4] + "x"'),
)  # fmt: skip
OWN = Piece(
    "own object",
    "$kind()",
    setup="""\
class ${kind}Stores:
    def __set__(self, value, new): vars(value)["stored"] = new

class ${kind}Root:
    base = 1
    def found(self): return self.a + 1

class ${kind}Base(${kind}Root):
    stored = ${kind}Stores()
    def found(self): return super().found() * 2

class $kind(${kind}Base):
    k = 1
    def __init__(self):
        self.a = 2
        self.stored = 3
    @property
    def p(self): return self.a + self.k
    def gain(self, factor=1): return self.a * factor
    @classmethod
    def made(cls): return cls.k + 1
    @staticmethod
    def fixed(): return 3
    def found(self): return super().found() + 1
    def __getattr__(self, name):
        if name.startswith("z_"):
            return self.a + len(name)
        raise AttributeError(name)

class ${kind}Other($kind):
    k = 4
    def gain(self, factor=1): return 5""",
    reads=(
        "$s.a", "$s.k", "$s.base", "$s.p", "$s.gain()", "$s.gain(factor=2)", "$s.made()", "$s.fixed()",
        "$s.found()", "$s.stored", "$s.z_more", 'getattr($s, "a")',
        'getattr($s, "ka"[$n % 2])', 'getattr($s, "extra", 0)',
        'hasattr($s, "extra")', 'vars($s)["a"]', "len(vars($s))", "type($s).k", "$kind.k",
        "isinstance($s, ${kind}Other)", "type($s) is $kind", "len(type($s).__name__)",
        "sum(vars($s).values())", '$s.__dict__.get("extra", 1)', 'operator.attrgetter("a")($s)',
        'operator.methodcaller("gain")($s)',
    ),
    moves=(
        "$s.a = $n", "$s.a = $n", "$s.k = $n", "$kind.k = $n", "${kind}Base.base = $n", "$s.extra = $n",
        "$s.a = 2", 'vars($s).pop("k", None)', 'vars($s).pop("extra", None)', "$kind.extra = $n",
        "$kind.p = property(lambda self: self.a * $n)", "$kind.gain = lambda self, factor=1: factor + $n",
        "$s.gain = lambda factor=1: $n", "${kind}Base.found = lambda self: $n",
        "${kind}Root.found = lambda self: $n", "$s.stored = $n", "$s.__class__ = ${kind}Other",
        "$s.__class__ = $kind", "$s = $kind()", "$s = ${kind}Other()", "$s.__dict__ = {'a': $n}",
        "$kind.made = classmethod(lambda cls: $n)", "$kind.fixed = staticmethod(lambda: $n)",
        "$kind.__getattribute__ = "
        "lambda self, name: $n if name == 'a' else object.__getattribute__(self, name)",
        "$kind.a = property(lambda self: $n, lambda self, value: None)", "$s.unread = $n",
    ),
    watch="[sorted((k, v) for k, v in vars($s).items() if k not in ('gain', 't')), $kind.k, "
    "vars($s).get('t')]",
    writes=(
        "$s.a = $n", "$s.a += 1", "$s.extra = $n", "$kind.k = $n", 'setattr($s, "ex" + "tra", $n)',
        "vars($s).pop('extra', None)", "$s.t = $a", "$s.t = $a\n$a = $s.t", "$s.t = $a[:1]",
    ),
)  # fmt: skip
OPERATORS = Piece(
    "own operators",
    "$kind()",
    setup="""\
class $kind:
    def __init__(self): self.a = 2
    def __len__(self): return int(self.a)
    def __bool__(self): return self.a > 2
    def __eq__(self, other): return self.a == getattr(other, "a", other)
    def __hash__(self): return int(self.a)
    def __lt__(self, other): return self.a < getattr(other, "a", other)
    def __iter__(self): return iter([self.a, 1])
    def __contains__(self, value): return value == self.a
    def __getitem__(self, index): return self.a + index
    def __call__(self, value): return value + self.a
    def __format__(self, spec): return "#" * int(self.a)
    def __repr__(self): return "r" * int(self.a)
    def __float__(self): return float(self.a)
    def __index__(self): return int(self.a)
    def __add__(self, other): return self.a + other
    def __rmul__(self, other): return other * self.a
    def __neg__(self): return -self.a
    def __enter__(self): return self.a
    def __exit__(self, *error): return False""",
    reads=(
        "len($s)", "1 if $s else 2", "not $s", "$s == $n", "$s != 2", "hash($s)", "$s < $n", "sum($s)",
        "max($s)", "$n in $s", "$s[$n]", "$s($n)", 'len(f"{$s}")', "len(str($s))", "len(repr([$s]))",
        "float($s)", "[0, 1, 2, 3, 4, 5, 6, 7][$s % 8 if 0 else $s.__index__() % 8]", "len(range($s))",
        "$s + 1", "2 * $s", "-$s", "$s in [0, 2]", "[3, 2, 1].index($s) if $s in [3, 2, 1] else 0",
        "len({$s: 0, 2: 1})", "sorted([3, $s])[0] == 3", "list($s)[0]", "any([$s])", "next(iter($s))",
    ),
    moves=(
        "$s.a = $n", "$s.a = $n", "$s.a = 2", "$kind.__len__ = lambda self: $n",
        "$kind.__bool__ = lambda self: $n % 2 == 0", "$kind.__eq__ = lambda self, other: $n % 2 == 0",
        "$kind.__iter__ = lambda self: iter([$n])", "$kind.__contains__ = lambda self, value: $n % 2 == 0",
        "$kind.__getitem__ = lambda self, index: $n", "$kind.__call__ = lambda self, value: $n",
        "$s = $kind()", "$kind.__format__ = lambda self, spec: 'x' * $n",
        "$kind.__float__ = lambda self: $n.5", "$kind.__add__ = lambda self, other: $n",
        "$kind.__hash__ = lambda self: $n", "$s.unread = $n",
    ),
    watch="vars($s)",
    writes=("$s.a += 1", "$s.a = $n"),
)  # fmt: skip
CALLED_BY_C = Piece(
    "methods that C calls",
    "$kind()",
    setup="""\
class ${kind}Base:
    def __round__(self, *digits): return int(self.a) + 1

class $kind(${kind}Base):
    def __init__(self): self.a = 2
    def __hash__(self): return int(self.a)
    def __eq__(self, other): return self.a == getattr(other, "a", other)
    def __index__(self): return int(self.a) % 4
    def __int__(self): return int(self.a)
    def __abs__(self): return self.a
    def __divmod__(self, other): return self.a, other
    def __bytes__(self): return b"a" * int(self.a)
    def __reversed__(self): return iter([self.a])
    def __fspath__(self): return "p" * int(self.a)
    def __copy__(self): return self.a
    def __call__(self, *given): return int(self.a)
    def __iadd__(self, other): return self.a + other
    def __repr__(self): return "r" * int(self.a)""",
    reads=(
        "len({$s, 2})", "len({$s: 0, 2: 1})", "len({e for e in ($s, 2, 3)})", "len({e: 1 for e in ($s, 2)})",
        "len({($s, 1), (2, 1)})", "len({2: 1, **{$s: 3}})", "{2: 5}.get($s, 4)", "[5, 6, 7, 8][$s]",
        "sum([5, 6, 7, 8][$s:])", "sum([5, 6, 7, 8][slice($s)])", "len('ab' * $s)", "len(hex($s))",
        "int($s)", "round($s)", "abs($s)", "divmod($s, 3)[0]", "len(bytes($s))", "sum(reversed($s))",
        "len(os.fspath($s))", "copy.copy($s)", "[1, 2, 3].count($s)", "next(iter($s, 99))",
        "sorted([1, 2], key=$s)[0]", "sum(map($s, [1, 2]))", "functools.reduce($s, [1, 2])",
        "operator.iadd($s, 1)", 'len(f"{$s!r:>2}")', "len(str([[[[$s]]]]))", "operator.index($s)",
        "[[[[$s]]]] == [[[[2]]]]",
    ),
    moves=(
        "$s.a = $n", "$s.a = 2", "$s = $kind()", "$kind.__hash__ = lambda self: $n",
        "$kind.__eq__ = lambda self, other: $n % 2 == 0", "$kind.__index__ = lambda self: $n % 4",
        "$kind.__int__ = lambda self: $n", "${kind}Base.__round__ = lambda self, *digits: $n",
        "$kind.__round__ = lambda self, *digits: $n", "$kind.__abs__ = lambda self: $n",
        "$kind.__divmod__ = lambda self, other: ($n, 1)", "$kind.__bytes__ = lambda self: b'b' * $n",
        "$kind.__reversed__ = lambda self: iter([$n])", "$kind.__fspath__ = lambda self: 'q' * $n",
        "$kind.__copy__ = lambda self: $n", "$kind.__call__ = lambda self, *given: $n",
        "$kind.__iadd__ = lambda self, other: $n", "$kind.__repr__ = lambda self: 's' * $n",
        "del $kind.__eq__", "del $kind.__int__", "del $kind.__repr__",
        "$kind.__getattribute__ = lambda self, name: $n",
    ),
    watch="vars($s)",
    writes=("$s.a += 1", "$s.a = $n"),
)  # fmt: skip
SLOTS = Piece(
    "slots",
    "$kind()",
    setup="""\
class $kind:
    __slots__ = ("a", "b")
    def __init__(self): self.a = 2""",
    reads=("$s.a", 'getattr($s, "b", 5)', 'hasattr($s, "b")', "$kind.a.__get__($s)"),
    moves=("$s.a = $n", "$s.b = $n", "$s = $kind()", "$kind.b = $n"),
    watch='[getattr($s, "a", None), getattr($s, "b", None)]',
    writes=("$s.a = $n", "$s.b = 1", "$s.a += 1"),
)  # fmt: skip
DESCRIPTOR = Piece(
    "descriptor and metaclass",
    "$kind()",
    setup="""\
class ${kind}Meta(type):
    m = 1
    @property
    def q(cls): return cls.m + 1

class ${kind}Field:
    def __init__(self): self.kept = 2
    def __get__(self, owner, kind=None): return self.kept
    def __set__(self, owner, value): self.kept = value

class $kind(metaclass=${kind}Meta):
    field = ${kind}Field()""",
    reads=("$s.field", "$kind.field", "$kind.m", "$kind.q", "type($s).q", 'getattr($kind, "m")'),
    moves=(
        "$s.field = $n", "${kind}Meta.m = $n", "vars($kind)['field'].kept = $n", "$kind.field = $n",
        "${kind}Field.__get__ = lambda self, owner, kind=None: $n", "$kind.m = $n",
    ),
    watch="[getattr(vars($kind)['field'], 'kept', 0), ${kind}Meta.m]",
    writes=("$s.field = $n", "$s.field += 1"),
)  # fmt: skip
DICT = Piece(
    "dict",
    '{"k": 1, "j": 2}',
    reads=(
        '$s["k"]', '$s.get("j", 0)', '$s.get("more", 4)', "len($s)", '"more" in $s', "sum($s.values())",
        "len(next(iter($s)))", 'list($s).index("k")', '$s == {"k": 1, "j": 2}', "len(str($s))",
        "1 if $s else 2", "sum(v * n for n, v in enumerate($s.values()))", "len($s.keys() - {'k'})",
        '$s["".join(["k"])]', "len(max($s, key=$s.get))", "sum(len(k) + v for k, v in $s.items())",
        'operator.itemgetter("k")($s)', "len(json.dumps($s))", "len({**$s, 'k': 0})",
        "sum(map($s.get, ['k', 'j'], [0, 0]))", "max($s.values())",
    ),
    moves=(
        '$s["k"] = $n', '$s["k"] = $n', '$s["j"] = $n', '$s["more"] = $n', '$s.pop("j", None)', '$s["k"] = 1',
        '$s["k"] = $s.pop("k", 1)', "$s = {'j': 2, 'k': $n}", "$s = dict($s)", '$s["unread"] = $n',
        "$s.update(k=$n, j=1)", '$s["k"] = True',
    ),
    watch="dict($s)",
    writes=(
        '$s["k"] = $n', '$s["n"] = $s.get("n", 0) + 1', '$s.setdefault("more", $n)', '$s.pop("j", None)',
        "$s.update(j=$n)", '$s["k"] = $s.pop("k", 1)', "$s.clear()\n$s.update(k=1, j=2)",
    ),
)  # fmt: skip
BIG_DICT = Piece(
    "big dict",
    "{n: 1 for n in range(5000)}",
    reads=("$s[4321]", "sum($s.values())", "len($s)", "$s.get(5001, 0)", "4321 in $s", "len($s) > 4999"),
    moves=("$s[4321] = $n", "$s[7] = $n", "$s.pop(4321, None)", "$s[5001] = $n", "$s[4321] = 1"),
    watch="[len($s), sum($s.values()), $s.get(4321), $s.get(5001)]",
    writes=("$s[5001] = 1", "$s[7] = $n"),
)  # fmt: skip
LIST = Piece(
    "list",
    "[1, 2, 3]",
    reads=(
        "$s[0]", "$s[-1]", "len($s)", "sum($s)", "3 in $s", "$s.count(1)", "$s == [1, 2, 3]", "sum($s[:2])",
        "sum(a * b for a, b in zip($s, range(9)))", "max($s)", "sorted($s)[0]", "next(iter($s))",
        "$s > [1, 1]", "sum(x for x in $s if x > 1)", "(lambda first, *rest: first + len(rest))(*$s)",
        "any($s)", "$s[len($s) // 2]", "len(''.join(map(str, $s)))", "bisect.bisect($s, 2)",
        "functools.reduce(operator.mul, $s)",
    ),
    moves=(
        "$s[0] = $n", "$s.append($n)", "$s.reverse()", "$s = [$n, 2, 3]", "$s.insert(0, $n)", "$s[1:] = [$n]",
        "$s = list($s)", "$s.sort()", "$s[0] = 1", "$s.extend([1, 2])", "del $s[1:]", "$s[0] = True",
    ),
    watch="list($s)",
    writes=(
        "$s.append($n)", "$s[0] = $n", "$s.reverse()", "$s[:] = [1, 2, 3]", "$s.sort()", "del $s[8:]",
        "$s += [1]",
    ),
)  # fmt: skip
BIG_LIST = Piece(
    "big list",
    "[1] * 300",
    reads=("$s[200]", "sum($s)", "len($s)", "7 in $s"),
    moves=("$s[200] = $n", "$s[10] = 7", "$s.pop()", "$s[200] = 1"),
    watch="[len($s), sum($s)]",
    writes=("$s[10] = $n", "$s.append(1)"),
)  # fmt: skip
SET = Piece(
    "set",
    "{1, 2}",
    reads=(
        "len($s)", "1 in $s", "5 in $s", "sum($s)", "$s == {1, 2}", "len($s - {1})", "len($s | {9})",
        "1 if $s else 2", "min($s | {8})", "$s.issubset({1, 2, 3})",
    ),
    moves=("$s.add($n)", "$s.discard(1)", "$s = {$n, 2}", "$s = set($s)", "$s.clear()", "$s ^= {1, 5}"),
    watch="sorted($s)",
    writes=("$s.add($n)", "$s.add(1)", "$s.discard(2)", "$s.clear()", "$s.clear()\n$s.update([1, 2])"),
)  # fmt: skip
BIG_SET = Piece(
    "big set",
    "set(range(5000))",
    reads=("4321 in $s", "len($s)", "sum($s) % 7", "5001 in $s"),
    moves=("$s.discard(4321)", "$s.add(4321)", "$s.add(5001)", "$s ^= {17, 5002}"),
    watch="[len($s), sum($s)]",
    writes=("$s.add(5001)", "$s.discard(17)"),
)  # fmt: skip
DEQUE = Piece(
    "deque",
    "collections.deque([1, 2, 3], maxlen=4)",
    reads=(
        "$s[0]", "$s[-1]", "len($s)", "sum($s)", "2 in $s", "$s.count(1)", "$s.maxlen", "list($s)[0]",
        "1 if $s else 2",
    ),
    moves=(
        "$s.append($n)", "$s.appendleft($n)", "$s.rotate(1)", "$s[0] = $n",
        "$s = collections.deque([$n, 2, 3])",
    ),
    watch="list($s)",
    writes=("$s.append($n)", "$s.rotate(1)", "$s[0] = $n", "$s.extend([1])", "$s.append($s.popleft())"),
)  # fmt: skip
EQUAL = Piece(
    "equal and not the same",
    "{'k': [0.0, (1, 0j)], 'd': {0.0: 1}, 's': {0.0}, 'n': [math.nan]}",
    reads=(
        "math.copysign(1, $s['k'][0])", "math.copysign(1, next(iter($s['d'])))", "$s['n'][0] in [math.nan]",
        "math.copysign(1, next(iter($s['s'])))", "type($s['k'][1][0]) is bool", "$s['n'].count(math.nan)",
        "math.copysign(1, $s['k'][1][1].imag)", "{math.nan: 1}.get($s['n'][0], 2)", "$s['n'] == [math.nan]",
    ),
    moves=(
        "$s['k'][0] = -0.0", "$s['k'][1] = (True, 0j)", "$s['k'][1] = (1, complex(0.0, -0.0))",
        "$s['d'].clear()\n$s['d'][-0.0] = 1", "$s['s'].clear()\n$s['s'].add(-0.0)",
        "$s['n'][0] = float('nan')", "$s['n'][0] = math.nan", "$s['d'] = {0.0: 1}",
    ),
    watch="repr($s)",
    writes=("$s['s'].clear()\n$s['s'].add(0.0)", "$s['n'][0] = math.nan"),
)  # fmt: skip
ORDERED = Piece(
    "ordered dict",
    "collections.OrderedDict(a=1, b=2)",
    reads=(
        '$s["a"]', "list($s.values())[0]", "len(next(iter($s)))", 'list($s).index("a")', "len($s)",
        "sum(v * n for n, v in enumerate($s.values()))", "next(reversed($s.values()))",
    ),
    moves=(
        '$s["a"] = $n', '$s.move_to_end("a")', '$s.move_to_end("b")', '$s["c"] = $n',
        "$s = collections.OrderedDict(a=1, b=2)",
    ),
    watch="list($s.items())",
    writes=('$s.move_to_end("a")', '$s["b"] = $n', '$s["c"] = 1'),
)  # fmt: skip
COUNTER = Piece(
    "counter and default dict",
    "(collections.Counter({1: 3, 5: 1}), collections.defaultdict(lambda: 2, k=1))",
    reads=(
        "$s[0][1]", "$s[0][9]", "$s[0].most_common(1)[0][0]", "sum($s[0].values())", '$s[1]["k"]',
        '$s[1].get("z", 3)', "len($s[1])",
    ),
    moves=(
        "$s[0].update([5] * 4)", "$s[0][1] = $n", '$s[1]["k"] = $n', "$s[1].default_factory = lambda: $n",
        "$s[0].subtract([1])",
    ),
    watch="[dict($s[0]), dict($s[1])]",
    writes=(
        "$s[0].clear()\n$s[0].update({1: 3, 5: 1})", "$s[0][5] += 1", "$s[0].update([1])", '$s[1]["new"]',
        '$s[1]["k"] = $n',
    ),
)  # fmt: skip
CHAIN = Piece(
    "chain map and user dict",
    '(collections.ChainMap({"a": 1}, {"b": 2}), collections.UserDict(k=1))',
    reads=(
        '$s[0]["b"]', '$s[0].get("a", 5)', "len($s[0])", '$s[1]["k"]', '"b" in $s[0]', "len($s[1])",
        '$s[1].get("z", 3)',
    ),
    moves=(
        '$s[0].maps[1]["b"] = $n', '$s[0]["b"] = $n', '$s[0].maps.insert(0, {"a": $n})', '$s[1]["k"] = $n',
        '$s[1].data = {"k": $n}',
    ),
    watch="[dict($s[0]), dict($s[1])]",
    writes=('$s[0]["a"] = $n', '$s[1]["k"] = $n', '$s[1]["more"] = 1'),
)  # fmt: skip
ENUM = Piece(
    "enum",
    "$kind.A",
    setup="""\
class ${kind}Load:
    load = 1

class $kind(enum.Enum):
    A = 1
    B = 2
    C = ${kind}Load()
    @property
    def gain(self): return 3
    def scaled(self): return 2""",
    reads=(
        "$kind.C.value.load", "$s.gain", "$s.scaled()", "len($s.name)", "$s is $kind.A",
        "$s in ($kind.A, $kind.C)", "len($kind)", "$kind[$s.name] is $kind.B",
        "{$kind.A: 1, $kind.B: 2}.get($s, 3)",
    ),
    moves=(
        "$s = $kind.B", "$s = $kind.A", "$kind.C.value.load = $n", "$kind.scaled = lambda self: $n",
        "$kind.gain = property(lambda self: $n)", "${kind}Load.load = $n", "$kind.A.extra = $n",
    ),
    watch="$s.name",
    writes=("$s = $kind.B",),
)  # fmt: skip
DATACLASS = Piece(
    "dataclass",
    "$kind(1)",
    setup="""\
@dataclasses.dataclass
class $kind:
    k: int
    names: list = dataclasses.field(default_factory=list)
    shift = 1
    def gain(self): return self.k * 2
    @property
    def p(self): return self.k + 1""",
    reads=(
        "$s.k", "$s.gain()", "$s.p", "$s.shift", "len($s.names)", "$s == $kind(1)",
        "len(dataclasses.asdict($s))", "dataclasses.replace($s, k=4).gain()", "len(str($s))",
        "len(dataclasses.fields($s))",
    ),
    moves=(
        "$s.k = $n", "$kind.gain = lambda self: $n", "$kind.shift = $n", "$s.names.append($n)",
        "$s = $kind($n)", "$s = $kind(1)", "$kind.p = property(lambda self: $n)",
        "$kind.__eq__ = lambda self, other: $n % 2 == 0",
    ),
    watch="dict(vars($s))",
    writes=("$s.k = $n", "$s.k += 1", "$s.names.append(1)", "$s.extra = $n"),
)  # fmt: skip
NAMED_TUPLE = Piece(
    "named tuple",
    "$kind(1, 2, [3], (lambda k: [k, lambda: k[0]])([4]))",
    setup="""\
class $kind(typing.NamedTuple):
    a: int
    b: int
    c: list = []
    d: list = [[5], lambda: 5]
    @property
    def gain(self): return self.a * 2
    def scaled(self): return self.b""",
    reads=(
        "$s.a", "$s[1]", "$s.gain", "$s.scaled()", "sum($s[:2])", "$s._replace(a=3).gain", "len($s._fields)",
        "isinstance($s, $kind)", "len($s.c)", "sum($s.c)", "$s.d[1]()", "$s[3][1]()", 'sum(getattr($s, "c"))',
        "sum($s._asdict()['c'])",
    ),
    moves=(
        "$s = $kind($n, 2)", "$kind.gain = property(lambda self: $n)", "$kind.scaled = lambda self: $n",
        "$s = $kind(1, 2)", "$s.c.append($n)", "$s.c[:] = [$n]", "$s.d[0][0] = $n",
    ),
    watch="[$s.a, $s.b, list($s.c), list($s.d[0])]",
    writes=("$s.c.append($n)", "$s.c.clear()\n$s.c.append(3)", "$s.d[0][0] = 4"),
)  # fmt: skip
CACHE = Piece(
    "cache",
    "$kind",
    setup="""\
${kind}Source = [2]

@functools.lru_cache(maxsize=2)
def $kind(n):
    return ${kind}Source[0] + n""",
    reads=(
        "$s(1)", "$s(2)", "$s($n)", "$s.cache_info().currsize", "$s.__wrapped__(1)",
    ),
    moves=(
        "${kind}Source[0] = $n", "$s.cache_clear()", "${kind}Source[0] = $n\n$s.cache_clear()", "$s(5)",
        "$s($n)",
    ),
    watch="$s.cache_info().currsize",
    writes=("$s.cache_clear()", "$s(4)"),
)  # fmt: skip
CACHED_TENSOR = Piece(
    "cache of tensors",
    "$kind",
    setup="""\
${kind}Source = [2.0]

@functools.cache
def $kind(n):
    return torch.full((4,), ${kind}Source[0] + n, device=w.device)""",
    reads=("$s(1)", "$s($n)", "$s(2) + $s(1)"),
    moves=(
        "${kind}Source[0] = $n.0", "$s.cache_clear()", "${kind}Source[0] = $n.0\n$s.cache_clear()",
        "$s(1).mul_(2)", "$s($n)",
    ),
    watch="$s.cache_info().currsize",
    tensor=True,
)  # fmt: skip
TENSORS = Piece(
    "tensors",
    '{"t": w.row(1), "all": [w.row(2)]}',
    reads=(
        '$s["t"]', '$s["all"][0]', 'sum($s["all"])', 'w.row(1) * len(str($s["t"].detach()))',
        'w.row(1) * len(f"{$s[\'all\'][0].detach()}")', '$s.get("more", 1.0)',
        '$s["all"][-1]',
    ),
    moves=(
        '$s["t"] = w.row($n)', '$s["t"].mul_(2)', '$s["all"].append(w.row($n))', '$s["more"] = w.row($n)',
        '$s["all"][0] = $s["t"]', '$s["all"].reverse()', '$s["all"] = [w.row(2)]',
    ),
    watch="dict($s)",
    writes=(
        '$s["t"] = $a.detach()[0]', '$s["all"].append($a.detach()[0])', '$s["all"] = [$a.detach()[0]]',
        '$s["t"] = $s["t"] * 0.5', '$s["more"] = $a.detach()[0] * 2', '$s["more"] = $s["t"]',
    ),
    tensor=True,
)  # fmt: skip
THREAD_LOCAL = Piece(
    "thread's local",
    "threading.local()",
    reads=('getattr($s, "k", 3)', 'hasattr($s, "k")', "len(vars($s))"),
    moves=("$s.k = $n", "vars($s).clear()", "out = w.in_thread(g, x, y)"),
    watch="dict(vars($s))",
    writes=("$s.k = $n", "$s.last = $n"),
)  # fmt: skip
COUNT = Piece(
    "itertools.count",
    "itertools.count(1)",
    reads=("next($s)", "next($s) % 3", "0 * next($s)"),
    moves=("next($s)", "$s = itertools.count($n)"),
    watch="repr($s)",
    writes=("next($s)",),
)  # fmt: skip
CYCLE = Piece(
    "iterators",
    "(itertools.cycle([1, 2, 2, 3]), iter(range(40)), itertools.repeat(2))",
    reads=("next($s[0])", "next($s[1], 5)", "next($s[2])"),
    moves=(
        "next($s[0])", "next($s[1], 5)", "$s = (itertools.cycle([$n]), iter([$n] * 9), itertools.repeat($n))",
    ),
    watch="operator.length_hint($s[1])",
    writes=("next($s[0])", "next($s[1], 5)"),
)  # fmt: skip
GENERATOR = Piece(
    "generator",
    "$kind()",
    setup="""\
${kind}Source = [2]

def $kind():
    while True:
        yield ${kind}Source[0]""",
    reads=("next($s)", "next($s) + 1"),
    moves=("${kind}Source[0] = $n", "next($s)", "$s = $kind()"),
    writes=("next($s)",),
)  # fmt: skip
BUFFERS = Piece(
    "array, bytearray, numpy",
    "(array.array('d', [1.0] * 80), bytearray(b'abc'), numpy.ones(200))",
    reads=(
        "$s[0][70]", "sum($s[0])", "$s[1][1] - 96", "len($s[1])", "float($s[2][150])", "float($s[2].sum())",
        "struct.unpack_from('<B', $s[1], 1)[0] - 96", "bytes($s[1]) == b'abc'", "len($s[0])",
        "memoryview($s[1])[0] - 96",
    ),
    moves=(
        "$s[0][70] = $n.5", "$s[1][1] = 96 + $n", "$s[2][150] = $n", "$s[0].append(1.0)",
        "$s[1].extend(b'd')", "$s[2][3] = $n",
    ),
    watch="[list($s[0]), bytes($s[1]), $s[2].tolist()]",
    writes=("$s[0][70] += 1", "$s[1][1] = 98", "$s[2][3] += 1", "$s[0][3] = $n"),
)  # fmt: skip
PATTERN = Piece(
    "re, json, partial, getters",
    "types.SimpleNamespace(p=re.compile(r'\\d'), part=functools.partial(pow, 2), get=operator.itemgetter(1))",
    reads=(
        "len($s.p.findall('1a22'))", "$s.part(2)", "$s.get((1, 2, 3))", "bool($s.p.match('x'))",
        "len($s.p.sub('--', '1a2'))", "len($s.part.args)", "len($s.p.pattern)",
    ),
    moves=(
        "$s.p = re.compile(r'\\d+')", "$s.part = functools.partial(pow, $n)",
        "$s.get = operator.itemgetter($n % 3)", "$s.part.__setstate__((pow, ($n,), {}, {}))",
        "$s.p = re.compile('x')",
    ),
    watch="[$s.p.pattern, $s.part.args]",
    writes=("$s.p = re.compile('2')",),
)  # fmt: skip
BOUND = Piece(
    "bound methods of C",
    "types.SimpleNamespace(get=${kind}D.get, count=${kind}L.count, "
    "has=${kind}S.__contains__, note=${kind}L.append)",
    setup="${kind}D, ${kind}L, ${kind}S = {'k': 1}, [1, 2], {1}",
    reads=("$s.get('k', 5)", "$s.count(1)", "$s.has(1)", "len($s.get.__self__)", "$s.get('more', 3)"),
    moves=(
        "${kind}D['k'] = $n", "${kind}L.append(1)", "${kind}S.discard(1)", "${kind}S.add(1)",
        "$s.get = {'k': $n}.get", "${kind}D.clear()",
    ),
    watch="[dict(${kind}D), list(${kind}L), sorted(${kind}S)]",
    writes=("$s.note(1)", "$s.note($n)"),
)  # fmt: skip
FUNCTION = Piece(
    "function",
    "$kind",
    setup="""\
def $kind(n, more=1, *, key=1):
    return n + more + key + ${kind}Cell[0]

def ${kind}Other(n, more=1, *, key=1):
    return n * 2 + 3

$kind.k = 1
${kind}Cell = [1]""",
    reads=(
        "$s(1)", "$s(1, key=2)", "$s.k", "len($s.__defaults__)", "len(inspect.signature($s).parameters)",
        "len($s.__name__)", "list(map($s, [1]))[0]", "sorted([1, 2], key=$s)[0]",
        "functools.partial($s, 2)()",
    ),
    moves=(
        "$kind.__defaults__ = ($n,)", "$kind.__kwdefaults__['key'] = $n", "$kind.k = $n",
        "${kind}Cell[0] = $n", "$s = ${kind}Other", "$s = $kind", "$kind.__name__ = 'f' * ($n + 1)",
        "$kind = lambda n, more=1, *, key=1: n + $n",
    ),
    watch="[getattr($s, 'k', 0), ${kind}Cell[0]]",
    writes=("$s.k = $n", "${kind}Cell[0] += 1"),
)  # fmt: skip
MODULE = Piece(
    "module object",
    "types.ModuleType('config')",
    setup="${kind}Hidden = {'z': 3}",
    reads=(
        "getattr($s, 'k', 4)", "hasattr($s, 'k')", "len($s.__name__)", "vars($s).get('k', 2)",
        "getattr($s, 'z', 1)",
    ),
    moves=(
        "$s.k = $n", "vars($s).pop('k', None)", "$s.__getattr__ = ${kind}Hidden.get",
        "${kind}Hidden['z'] = $n", "$s.__name__ = 'm' * ($n + 1)",
    ),
    watch="vars($s).get('k')",
    writes=("$s.k = $n",),
)  # fmt: skip
WEAK = Piece(
    "weak references",
    "[weakref.ref(${kind}Kept[0]), weakref.WeakValueDictionary({1: ${kind}Kept[0]}), "
    "weakref.WeakSet(${kind}Kept)]",
    setup="""\
class $kind:
    k = 1

${kind}Kept = [$kind()]""",
    reads=("$s[0]() is None", "getattr($s[0](), 'k', 5)", "len($s[1])", "1 in $s[1]", "len($s[2])"),
    moves=(
        "${kind}Kept.clear()", "${kind}Kept.append($kind()); $s[2].add(${kind}Kept[-1])",
        "$kind.k = $n", "${kind}Kept.append($kind()); $s[1][1] = ${kind}Kept[-1]",
        "${kind}Kept.append($kind()); $s[0] = weakref.ref(${kind}Kept[-1])",
    ),
    watch="[$s[0]() is None, len($s[1]), len($s[2])]",
)  # fmt: skip
REGISTRY = Piece(
    "abstract class and dispatch",
    "$kind()",
    setup="""\
class ${kind}Abstract(abc.ABC):
    pass

class $kind:
    pass

@functools.singledispatch
def ${kind}Gain(value):
    return 2

${kind}Kept = []  # or when the collector looks would decide how many there are""",
    reads=(
        "isinstance($s, ${kind}Abstract)", "${kind}Gain($s)", "${kind}Gain(3)",
        "issubclass($kind, ${kind}Abstract)", "len($kind.__subclasses__())",
        "isinstance($s, collections.abc.Sized)", "callable($s)",
    ),
    moves=(
        "${kind}Abstract.register($kind)", "${kind}Gain.register($kind, lambda value: $n)",
        "${kind}Gain.register(int, lambda value: $n)", "${kind}Kept.append(type('Sub', ($kind,), {}))",
        "$kind.__len__ = lambda self: $n", "$kind.__call__ = lambda self: $n",
    ),
)  # fmt: skip
CONTEXT = Piece(
    "context variable, environment, decimal",
    "contextvars.ContextVar('k', default=1)",
    setup="os.environ.pop('ROTE_FUZZ', None)\ndecimal.getcontext().prec = 5",
    reads=(
        "$s.get()", "$s.get(3)", "len(os.environ.get('ROTE_FUZZ', ''))", "'ROTE_FUZZ' in os.environ",
        "len(str(decimal.Decimal(1) / 7))",
    ),
    moves=(
        "$s.set($n)", "os.environ['ROTE_FUZZ'] = 'x' * $n", "os.environ.pop('ROTE_FUZZ', None)",
        "decimal.getcontext().prec = $n + 3",
        "contextvars.copy_context().run(lambda: ($s.set($n), w.call(g, x, y)))",
    ),
    watch="[$s.get(), os.environ.get('ROTE_FUZZ')]",
    writes=("$s.set($n)", "os.environ['ROTE_FUZZ'] = 'y' * $n"),
)  # fmt: skip
MOCK = Piece(
    "mock and random",
    "types.SimpleNamespace(m=mock.Mock(return_value=2), r=random.Random(3))",
    reads=("$s.m()", "$s.r.randint(0, 4)", "$s.m.call_count", "$s.r.random()"),
    moves=("$s.m.return_value = $n", "$s.r.seed($n)", "$s.m.reset_mock()", "$s.m(1)"),
    watch="[$s.m.call_count, $s.r.getstate()[1][-1]]",
    writes=("$s.m()", "$s.r.random()"),
)  # fmt: skip
GRAPH = Piece(
    "objects in objects",
    "types.SimpleNamespace(a=types.SimpleNamespace(b=[{'k': 1}]), which='a')",
    reads=(
        "$s.a.b[0]['k']", "getattr($s, $s.which).b[-1]['k']", "len($s.a.b)",
        "sum(each['k'] for each in $s.a.b)", "$s.a is getattr($s, 'c', None)",
    ),
    moves=(
        "$s.a.b[0]['k'] = $n", "$s.a = types.SimpleNamespace(b=[{'k': $n}])", "$s.a.b.append({'k': $n})",
        "$s.c = $s.a", "$s.a.b = list($s.a.b)", "$s.c = types.SimpleNamespace(b=[{'k': $n}]); $s.which = 'c'",
    ),
    watch="[$s.which, [dict(each) for each in $s.a.b]]",
    writes=(
        "$s.a.b[0]['k'] = $n", "$s.a.b.append({'k': 1})", "$s.which = 'a'",
        "$s.a = types.SimpleNamespace(b=[{'k': $n}])",
    ),
)  # fmt: skip
PIECES = [
    NUMBER, TEXT, OWN, OPERATORS, CALLED_BY_C, SLOTS, DESCRIPTOR, DICT, BIG_DICT, LIST, BIG_LIST, SET,
    BIG_SET, DEQUE, EQUAL, ORDERED, COUNTER, CHAIN, ENUM, DATACLASS, NAMED_TUPLE, CACHE, CACHED_TENSOR,
    TENSORS, THREAD_LOCAL, COUNT, CYCLE, GENERATOR, BUFFERS, PATTERN, BOUND, FUNCTION, MODULE, WEAK, REGISTRY,
    CONTEXT, MOCK, GRAPH, *LIBRARY_PIECES,
]  # fmt: skip
