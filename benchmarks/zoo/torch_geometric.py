"""Graph networks of PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import dropout_edge, to_undirected

Items = Iterator[Any]


def random_graph(nodes: int, edges: int, features: int = 8) -> Data:
    edge_index = to_undirected(torch.randint(nodes, (2, edges)))
    return Data(x=torch.randn(nodes, features), edge_index=edge_index, y=torch.randint(3, (nodes,)))


def node_classification(wrap: Any, device: Any) -> Items:
    """A GCN on one graph, trained on masked nodes with Adam, as in the introduction."""

    class GCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = gnn.GCNConv(8, 16), gnn.GCNConv(16, 3)

        def forward(self, data: Data) -> Tensor:
            x = F.relu(self.first(data.x, data.edge_index))
            x = F.dropout(x, training=self.training)
            return F.log_softmax(self.second(x, data.edge_index), dim=1)

    data = random_graph(40, 80).to(device)
    data.train_mask = torch.rand(40, device=device) < 0.5
    model = GCN().to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    @wrap
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(), model


def attention_inference(wrap: Any, device: Any) -> Items:
    """A GAT on a fixed graph whose node features change."""
    edge_index = random_graph(30, 60).edge_index.to(device)
    model = wrap(gnn.GAT(8, 16, 2, 3, heads=2, v2=True).to(device).eval())
    with torch.no_grad():
        while True:
            yield model(torch.randn(30, 8).to(device), edge_index)


def graph_classification(wrap: Any, device: Any) -> Items:
    """Batches of graphs of different sizes, GIN and pooling: sizes hardly ever come again."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.head = gnn.GIN(8, 16, 2), nn.Linear(16, 2)

        def forward(self, data: Batch) -> Tensor:
            return self.head(gnn.global_add_pool(self.net(data.x, data.edge_index), data.batch))

    forward = wrap(Net().to(device).eval())
    with torch.no_grad():
        while True:
            sizes = torch.randint(5, 15, (4,)).tolist()
            yield forward(Batch.from_data_list([random_graph(size, 2 * size) for size in sizes]).to(device))


def sampled_neighbours(wrap: Any, device: Any) -> Items:
    """GraphSAGE with random edges dropped in each step."""
    data = random_graph(40, 100).to(device)
    model = gnn.GraphSAGE(8, 16, 2, 3).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @wrap
    def step(x: Tensor) -> Tensor:
        edge_index, _ = dropout_edge(data.edge_index, p=0.2)
        loss = F.cross_entropy(model(x, edge_index), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(data.x), model


def schnet_forces(wrap: Any, device: Any) -> Items:
    """SchNet: the energy of molecules of one size, and forces as its gradient."""

    def pairs(positions: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.combinations(torch.arange(len(positions), device=positions.device)).T
        found = torch.cat([found, found.flip(0)], 1)
        return found, (positions[found[0]] - positions[found[1]]).norm(dim=-1)

    model = gnn.models.SchNet(16, 16, 2, 10, interaction_graph=pairs).to(device).eval()
    numbers, molecule = torch.randint(1, 9, (8,)).to(device), torch.zeros(8, dtype=torch.long, device=device)

    @wrap
    def forces(positions: Tensor) -> tuple[Tensor, Tensor]:
        positions = positions.detach().requires_grad_()
        energy = model(numbers, positions, molecule)
        (slope,) = torch.autograd.grad(energy.sum(), positions)
        return energy.detach(), -slope

    while True:
        yield forces(torch.rand(8, 3).to(device) * 3)
