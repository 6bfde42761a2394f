"""Programs of PyTorch that join; they run in the Python environment of PyTorch."""
