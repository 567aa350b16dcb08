"""Real servers for tests, examples and `make services`: each on a free loopback port, with a directory of its own."""
