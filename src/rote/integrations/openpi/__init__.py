"""openpi's PyTorch policies (pi0, pi0.5), recorded and replayed. openpi is not imported here.

policy = graph_policy(create_trained_policy(config, checkpoint))  # or a PI0Pytorch
policy.infer(observation)
model = graph_training(PI0Pytorch(config))
"""

from .policy import graph_policy, graphed
from .training import graph_training

__all__ = ["graph_policy", "graph_training", "graphed"]
