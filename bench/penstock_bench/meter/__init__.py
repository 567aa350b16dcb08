"""The meter: what is measured and how, the same for every engine: one loop, one sampler, one search, one format."""
