"""The short set of measurements, `make bench`."""
