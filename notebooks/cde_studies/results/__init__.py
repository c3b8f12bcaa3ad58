"""What the chapters of results run."""
