"""The policies that come with the package, one concept a module."""
