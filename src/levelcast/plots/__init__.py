"""One plotting style: SVG charts and the HTML parts of a page."""
