"""What the chapters on clustering run."""
