"""Build the documentation site: `make docs`, or `python -m website`.

`conf` configures Sphinx. `home`, `repository`, `diagrams` and `docstrings` extend it, so that the files of `docs/` stay
plain Markdown that any viewer shows. `build` runs it. `reference` writes the pages that are made from the code.
"""
