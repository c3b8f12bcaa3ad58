"""What the chapters on the encoder run."""
