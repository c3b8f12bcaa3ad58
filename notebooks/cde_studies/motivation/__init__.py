"""What the chapters on the motivation run."""
