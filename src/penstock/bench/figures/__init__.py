"""Pictures of measurements: as inline SVG in a page that needs nothing else, and as PNG where Matplotlib is there."""
