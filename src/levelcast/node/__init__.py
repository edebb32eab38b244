"""Nodes as processes: roles, services, status, operator actions, clusters, and the demo.

| subject                 | modules                                                                        |
|-------------------------|--------------------------------------------------------------------------------|
| one node                | `node`, `options`, `roles/`, `synthetic_floor`, `retention`                     |
| its edge                | `edge_service`, `edge_state_files`, `snapshot_server`                           |
| its status              | `status`, `metrics`, `http_server`, `status_client`, `probe_report`             |
| many nodes              | `cluster`, `fork_server`, `verdict`                                             |
| a trading floor         | `floor/`                                                                        |
| groups without a ring   | `group_run`, `multicast_group`                                                  |
| changes while it runs   | `operate/`                                                                      |
| the demo                | `demo/`                                                                         |

Imports every lower layer. Imported by `cli`.
"""
