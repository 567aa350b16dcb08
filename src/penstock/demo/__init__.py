"""`penstock demo` and `penstock chaos` behind the command line: a burst with its pictures, and kills on purpose."""
