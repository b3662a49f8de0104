"""What is noticed while it runs: races, undefined reads, traffic, counts."""
