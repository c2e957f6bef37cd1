"""Schedule to Program: buffers, thread blocks, channels, dependencies."""
