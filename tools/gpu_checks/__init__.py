"""What tools/gpu_check.py checks."""
