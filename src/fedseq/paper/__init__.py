"""The paper's experiments as data, run through ordinary run folders, and compared with its published numbers."""
