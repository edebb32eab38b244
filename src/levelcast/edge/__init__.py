"""From released frames to subscribers, sans I/O: `server` sends, `subscriber` receives, `plan_parts` is for both.

Imports `network`, `protocol`, `wire` and `records`. Driven by `node`, `client` and `sim`. User guide: docs/edge.md.
"""
