"""Which rank holds what of a global array: layouts as plain data, and the parts that they make."""
