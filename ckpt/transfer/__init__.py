"""Between the memory of the ranks and the pieces of the file: who moves which, and the exchange it takes."""
