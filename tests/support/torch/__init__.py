"""Programs of PyTorch that join; they run in its own environment."""
