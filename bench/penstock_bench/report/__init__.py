"""The report of measurements: figures and one page, from the JSON that benchmarks and studies write."""
