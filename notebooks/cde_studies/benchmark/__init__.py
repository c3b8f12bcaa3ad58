"""What the chapters on benchmarks run."""
