"""Send released frames to subscribers, sans I/O: `server` sends, `subscriber` receives, both use `plan_parts`.

Imports `network`, `protocol`, `wire` and `records`. Driven by `node`, `client` and `sim`. User guide: docs/edge.md.
"""
