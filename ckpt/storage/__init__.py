"""The file: its layout by HDF5, its manifest and seal, compression, and the drivers that write and read it."""
