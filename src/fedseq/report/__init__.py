"""Tables and pictures out of run folders. Knows only what is in them."""
