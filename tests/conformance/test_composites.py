"""Operations made of others: which others is not for the recorder to change, and not to be frozen."""

from __future__ import annotations

import copy
import threading
from types import SimpleNamespace

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import rote
from rote.testing import compare


def matrices(device, dtype=torch.float32, *, count=6):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(5, 5, generator=generator, dtype=dtype).to(device),) for _ in range(count)]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("function", [torch.linalg.pinv, lambda z: torch.fft.hfftn(z.real.expand(2, 5, 5))])
def test_a_kernel_that_conjugates_a_result_of_its_own(device, function, inference):
    with torch.inference_mode(inference):
        compare(function, matrices(device, torch.complex64))


@pytest.mark.parametrize("modes", [(torch.inference_mode,), (torch.no_grad, torch.inference_mode)])
@pytest.mark.parametrize(
    "look",
    [
        lambda w: w.reshape(5, 5, 1), torch.flatten, lambda w: torch.hsplit(w, 5), lambda w: w.chunk(2),
        lambda w: torch.tensor_split(w, 2), lambda w: w.mT, lambda w: w.contiguous(),
        lambda w: w.narrow(0, 1, 2), lambda w: w.unflatten(0, (5, 1)), lambda w: w.expand_as(w),
        lambda w: w.view(25), lambda w: w * 2,
    ],
)  # fmt: skip
def test_views_in_inference_mode_of_what_was_made_outside(device, look, modes):
    """They require grad as their base does, and what is written to them counts as a version of it."""
    kept = torch.ones(5, 5, device=device).requires_grad_()
    read = torch.ones(5, 5, device=device)

    def call(x, blocked):
        seen, asked = look(kept), look(read)
        asked = asked if isinstance(asked, torch.Tensor) else asked[0]
        before = read._version
        asked.add_(x)
        facts = [asked.requires_grad, asked.is_inference(), asked._is_view(), read._version - before]
        return seen, facts, threading.get_ident() if blocked else 0

    def shown(out):
        seen = [out[0]] if isinstance(out[0], torch.Tensor) else out[0]
        return [(s.requires_grad, s.is_inference(), s.is_leaf, s._is_view()) for s in seen], out[1]

    with modes[0](), modes[-1]():
        for blocked in (False, True):
            g = rote.graph(call)
            for n in range(6):
                x = torch.full((), float(n), device=device)
                assert shown(g(x, blocked)) == shown(call(x, blocked))


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.svdvals,
        lambda x: torch.linalg.eigvalsh(x + x.T),
        lambda x: torch.linalg.eigvalsh(x + x.T, UPLO="U"),
        lambda x: torch.linalg.cond(x),
        lambda x: torch.linalg.matrix_norm(x, "nuc"),
        lambda x: x.norm("nuc"),
    ],
)
def test_values_without_vectors(device, function):
    compare(function, matrices(device))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.eigvals(x).abs().sum(),
        lambda x: torch.linalg.svd(x).S,
        lambda x: torch.linalg.lu_factor(x).LU,
        lambda x: torch.fft.fft(x).real,
    ],
)
def test_solvers_that_wait_for_the_device(device, function):
    """Libraries that cannot be captured say so by a status of their own."""
    g = compare(function, matrices(device))
    assert g.report().replayed, g.explain()


@pytest.mark.parametrize("size", [1, 7, 64, 600])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("vectors", [True, False])
def test_eigenvalues(device, size, batch, vectors):
    def fn(x):
        x = x @ x.mT + torch.eye(size, device=x.device)
        return torch.linalg.eigh(x).eigenvectors.abs().sum(-1) if vectors else torch.linalg.eigvalsh(x) * 2

    inputs = [(torch.randn(*batch, size, size, device=device),) for _ in range(8)]
    g = compare(fn, inputs)
    assert g.report().replayed, g.explain()


def test_values_whose_vectors_a_gradient_needs(device):
    def step(x):
        x = x.detach().requires_grad_()
        torch.linalg.svdvals(x).sum().backward()
        return x.grad

    compare(step, matrices(device))


@pytest.mark.parametrize("product", [torch.matmul, lambda x, y: x @ y, lambda x, y: x.matmul(y)])
@pytest.mark.parametrize(("one", "other"), [((5, 33, 70), (1, 70, 31)), ((1, 33, 70), (5, 70, 31))])
def test_a_product_with_a_batch_of_length_one(device, product, one, other):
    generator = torch.Generator().manual_seed(0)
    dtype = torch.complex64  # in which the two ways differ on a CPU

    def factor(shape):
        return torch.randn(shape, generator=generator, dtype=dtype).to(device)

    g = compare(product, [(factor(one), factor(other)) for _ in range(6)])
    assert g.report().replayed == 4


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("loss", [
    lambda *each: torch.nn.functional.ctc_loss(*each),
    lambda p, targets, given, wanted: torch.ctc_loss(p, targets, given, target_lengths=wanted, blank=1),
    torch.nn.CTCLoss(zero_infinity=True),
])  # fmt: skip
def test_a_loss_of_ctc_with_lengths_in_tensors(device, loss, on_device):
    """PyTorch reads them on the host where no mode is active; where one is, the kernel takes them."""
    home = device if on_device else "cpu"
    lengths = torch.tensor([5, 4], device=home), torch.tensor([2, 1], device=home)
    targets = torch.tensor([[2, 3], [3, 0]], device=device)

    def step(x):
        x = (x * 2).requires_grad_()
        return torch.autograd.grad(loss(x.log_softmax(-1), targets, *lengths).sum(), x)

    g = compare(step, [(torch.randn(5, 2, 4).to(device),) for _ in range(8)])
    assert g.report().replayed >= 5, g.explain()


def test_a_list_in_an_index_behind_an_operation(device):
    """PyTorch makes a tensor of it below the dispatcher, by a copy that no capture may hold."""

    def fn(x, i):
        y = x * 2
        y[:, [0, 2]] = 0.5
        y[[True, False, True]] += 1
        return y[..., [2, 0]], y[[1, 0]], y[i, [0, 1]], y[:, [i, i + 1]], y[[]]

    g = compare(fn, [(torch.randn(3, 4).to(device), n % 3) for n in range(16)])
    assert g.report().replayed >= 8, g.explain()


def test_split_at_places_in_a_tensor(device):
    def fn(x, places):
        return [part.sum() for part in torch.tensor_split(x, places)]

    x = torch.arange(10.0, device=device)
    g = compare(fn, [(x, torch.tensor([n % 3, 5])) for n in range(12)])
    assert g.report().replayed >= 3
    keywords = [{"x": x, "places": torch.tensor([3, 5 + n // 6])} for n in range(12)]
    compare(lambda x, places: x.tensor_split(tensor_indices_or_sections=places, dim=0)[0] + 1, keywords)
    compare(
        lambda x, places: torch.tensor_split(x, places, 0)[0] + 1,
        [(x, torch.tensor(2 + n // 6)) for n in range(12)],
    )


@pytest.mark.parametrize("second", [[6, 1, 4], [5, 2, 1]])  # as long as the first ones, and shorter
@pytest.mark.parametrize("layer", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_packed_sequences_are_not_recorded(device, layer, second):
    model = layer(2, 3, batch_first=True).requires_grad_(False).to(device)

    def fn(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(model(packed)[0], batch_first=True)

    x = torch.randn(3, 6, 2).to(device)
    g = compare(fn, [(x, torch.tensor([6, 3, 2] if n < 6 else second)) for n in range(12)])
    assert "RT112" in {reason.code for reason in g.report().reasons} and not g.report().replayed


def test_a_sequence_packed_outside(device):
    model = torch.nn.GRU(2, 3).requires_grad_(False).to(device)
    g = rote.graph(lambda data, sizes: model(PackedSequence(data, sizes))[0].data)
    data = torch.randn(7, 2).to(device)
    for sizes in [[3, 3, 1]] * 4 + [[3, 2, 2]] * 4:  # of one shape, with one first entry
        given = data, torch.tensor(sizes)
        assert torch.equal(g(*given), model(PackedSequence(*given))[0].data)
    g.reset()


def _fills(x):
    return x


def _turned(x):
    return x.t()


def _part(x):
    return x[1:]


def _wide(x):
    return x[:, :1].expand(3, 4)


def _strided(x):
    return x[:, ::2]


def _empty(x):
    return x[:0]


def _noted(x):
    x = x.clone()
    x.note = [1, x]
    return x


def _wanted(x):
    return x.clone().requires_grad_()


@pytest.mark.parametrize(
    "source",
    [_fills, _turned, _part, _wide, _strided, _empty, _noted, _wanted],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("several", [False, True])
def test_a_deep_copy_of_a_tensor(device, source, several):
    """Tensors over one storage have copies over one, whoever is copied first; each copy is written behind."""

    def fn(x):
        made = source(x)
        found = copy.deepcopy([made, x.detach(), made, x] if several else made)
        with torch.no_grad():
            (found[0] if several else found).mul_(2) if source is not _wide else None
        return found, x + 1

    def told(result):
        tensors = [*(result[0] if several else result[:1]), result[1]]
        handles = [each.untyped_storage()._cdata for each in tensors]
        shared = [[one == other for one in handles] for other in handles]
        same = [[one is other for one in tensors] for other in tensors]
        looks = [
            (each.stride(), each.storage_offset(), each.requires_grad, sorted(vars(each))) for each in tensors
        ]
        return shared, same, looks, [each.tolist() for each in tensors]

    g = rote.graph(fn, keep=True)
    for number in range(8):
        x = torch.arange(12.0, device=device).reshape(3, 4) + number
        assert told(g(x.clone())) == told(fn(x.clone())), number
    assert g.report().replayed >= 4 or source is not _fills or several, g.explain()


def test_the_best_state_of_a_model_is_kept(device):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        state = SimpleNamespace(best=float("inf"), kept=None)

        def step(x):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            if loss.item() < state.best:
                state.best, state.kept = loss.item(), copy.deepcopy(model.state_dict())
            return loss.detach()

        return step, state

    (fn, ours), (plain, theirs) = make(), make()
    g = rote.graph(fn, keep=True)
    for number in range(50):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(number)).to(device)
        assert torch.equal(g(x), plain(x)) and ours.best == theirs.best
        assert [*map(str, ours.kept)] == [*map(str, theirs.kept)]
        assert all(torch.equal(ours.kept[name], theirs.kept[name]) for name in ours.kept)
    assert g.report().replayed >= 20, g.explain()
