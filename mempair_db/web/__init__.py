"""`mempair web`: see models learn and forget, in a browser."""
