"""What the chapters on batches run."""
