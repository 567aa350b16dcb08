"""Programs for other engines, started as ``python -m programs.…``; PENSTOCK_SPEC names their specification."""
