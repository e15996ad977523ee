"""Policies of lerobot, recorded and replayed: chunks of actions, and losses. lerobot is not imported here.

policy = graph_policy(make_policy(config, env_cfg=env))
policy.select_action(observation)
"""

from .policy import graph_policy, graphed

__all__ = ["graph_policy", "graphed"]
