"""What the chapters on your own text share."""
