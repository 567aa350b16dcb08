"""The laws of the papers, one pure module each, with the papers' worked examples as tests; `control` asks them."""
